package peer

import (
	"errors"

	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/namespace"
)

// Datastores holds what the peer can learn again: records of the DHT, the keys of announced
// roots, and addresses of other peers. The peer closes what it opened.
type Datastores interface {
	// Open opens the datastore of a name, or makes it. Its Query costs as much as it finds.
	Open(name string) (datastore.Batching, error)
	// Remove removes a datastore that is not open; none is no error.
	Remove(name string) error
}

// mainName is the datastore of everything but the keys of announced roots, see keystoreName.
const mainName = "main"

// Namespaces in the main datastore.
const (
	recordsSpace  = "/dht"
	keystoreSpace = "/keystore"
	addressSpace  = "/peers"
)

// openDatastores opens what routing keeps.
func (p *Peer) openDatastores() (err error) {
	if p.opts.Datastores == nil {
		return errors.New("options need Datastores for routing")
	}
	space := func(name string) datastore.Batching { return namespace.Wrap(p.main, datastore.NewKey(name)) }
	if p.main, err = p.opts.Datastores.Open(mainName); err != nil {
		return err
	}
	if p.providing.keys, err = newKeystore(p.opts.Datastores, space(keystoreSpace)); err != nil {
		return err
	}
	p.rejoin.store = space(addressSpace)
	p.records, err = newRecords(p.ctx, space(recordsSpace))
	return err
}

// closeDatastores is called after all that uses them has ended.
func (p *Peer) closeDatastores() (err error) {
	if p.providing.keys != nil {
		err = p.providing.keys.Close()
	}
	if p.main != nil {
		err = errors.Join(err, p.main.Close())
	}
	return err
}
