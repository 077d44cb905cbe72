package peer

import (
	"errors"

	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/namespace"
)

// Datastores stores data that the peer can get again from the network and from the replicated
// state: DHT records, the keys of announced roots, and addresses of other peers. The peer closes
// each datastore that it opens.
type Datastores interface {
	// Open opens or creates the datastore with this name. The cost of a Query depends only
	// on the number of its results.
	Open(name string) (datastore.Batching, error)
	// Remove removes a datastore that is not open. It returns nil if there is none.
	Remove(name string) error
}

// mainName is the name of the datastore for all data except the keys of announced roots. The
// datastores of these keys have names that begin with keystoreName.
const mainName = "main"

// Namespaces in the main datastore.
const (
	recordsSpace  = "/dht"
	keystoreSpace = "/keystore"
	addressSpace  = "/peers"
)

// openDatastores opens the datastores that routing uses.
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

// closeDatastores closes the datastores. Call it after all their users have ended.
func (p *Peer) closeDatastores() (err error) {
	if p.providing.keys != nil {
		err = p.providing.keys.Close()
	}
	if p.main != nil {
		err = errors.Join(err, p.main.Close())
	}
	return err
}
