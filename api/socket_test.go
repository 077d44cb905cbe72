package api

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin"
)

// Of eight nodes that find the socket of a dead one at the same time, exactly one listens. The folder is locked
// only later, so one node must not take away the socket that another has just made.
func TestOneOfManyTakesTheSocketOfADeadNode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, admin.SocketName)
	for range 50 {
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		if err := dead.Close(); err != nil {
			t.Fatal(err)
		}
		const many = 8
		listening := make(chan net.Listener, many)
		for range many {
			go func() {
				l, err := listenSocket(dir)
				if err != nil {
					l = nil
				}
				listening <- l
			}()
		}
		var won []net.Listener
		for range many {
			if l := <-listening; l != nil {
				won = append(won, l)
			}
		}
		if len(won) != 1 {
			t.Fatalf("%d listen", len(won))
		}
		for _, l := range won {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
