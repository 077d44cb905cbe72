package state

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

// A fixed history at feature level 4 leaves exactly the rows of the golden file. Members of two releases apply the
// same commands and have to come to one state. A row that is to be stored otherwise needs a newer feature level.
func TestRowsOfAHistoryKeepTheirForm(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: 4})
	m.must(&SetQuota{Account: bob, Allowance: Unlimited})
	s := &shelf{m, m.bucket(bob, "bucket")}
	const day = 1_800_000_000_123 // of no round number in any width of a counter
	pin := func(a AccountID, id RequestID, cid, name string, created Millis) *CreatePin {
		return &CreatePin{
			Pin:   Pin{ID: id, Account: a, CID: cid, Name: name, Created: created, Origins: []string{"/ip4/1.2.3.4/tcp/1"}, Meta: map[string]string{"k": "v"}},
			Nodes: []NodeID{"n1", "n2", "n3"},
		}
	}
	s.must(pin(alice, "p1", contents[0], "Näme", day))
	s.hold(rootOf(t, contents[0]))
	s.must(pin(bob, "p2", contents[0], "", day+5000))
	s.must(pin(alice, "p3", contents[2], "fails", day+1<<22))
	s.giveUp(rootOf(t, contents[2]), "nobody has it")
	s.must(pin(alice, "p4", contents[4], "waits", day+1<<23))
	s.report("n1", rootOf(t, contents[4]), Fetching, "")
	s.must(&CreateOnce{Key: Hash{1, 2, 3}, Change: pin(alice, "p5", contents[4], "once", day+9), At: day, By: day})
	s.must(&ReplacePin{Old: "p1", Pin: pin(alice, "p6", contents[3], "new", day+10).Pin, Nodes: []NodeID{"n2"}})
	s.must(&CreateKey{Key: APIKey{ID: "key", Account: alice, Scope: []string{"storage:read"}, Created: day, Expires: day + 1}})
	s.must(&CreateTicket{Ticket: Ticket{ID: "ticket", Expires: day}})
	s.must(&GrantCredits{Posting: Posting{ID: "posting", Account: bob, Credits: 7}})
	s.must(&SetQuota{Account: alice, Allowance: 1 << 40})
	s.must(&RotateSigningKey{Sealed: []byte("sealed")})
	s.must(&NoteUses{Items: []Use{{Key: "key", At: day + 60_000}}})
	s.must(&Fence{Node: "n3", Epoch: 3})
	s.must(s.putOf("k", "v1", contents[1]))
	s.versioning(Versioned)
	s.must(s.putOf("k", "v2", contents[3]))
	s.drop("marker", "k")
	s.must(s.begin("film", "up"))
	s.must(s.partOf("film", "up", 1, "part1", contents[1]))
	s.must(s.partOf("film", "up", 2, "part2", contents[2]))
	s.must(s.completeOf("film", "up", contents[3], Part{Number: 1, ID: "part1", ETag: "e-part1"}, Part{Number: 2, ID: "part2", ETag: "e-part2"}))
	s.must(s.begin("open", "up2"))
	s.must(s.partOf("open", "up2", 10_000, "part3", contents[1]))
	s.must(s.setPublic(true))
	s.must(&DeleteBucket{Account: bob, Name: "gone", Born: s.bucket(bob, "gone").Born})
	s.must(&RemoveNode{ID: "n3"})
	s.check()

	var lines []string
	for _, r := range s.rows() {
		lines = append(lines, fmt.Sprintf("%x %x", r.key, r.value))
	}
	goldentest.File(t, filepath.Join("testdata", "rows.txt"), []byte(strings.Join(lines, "\n")+"\n"))
}

// CreateAccount rejects an e-mail address that lacks a part, is too long, or has a space or a control character.
func TestBadAddressesOfAccountsAreRefused(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n-len("@example.org")) + "@example.org" }
	for email, good := range map[string]bool{
		"a@b": true, "carol@example.org": true, long(MaxEmailLen): true, "!~@b": true,
		"": false, "@": false, "@b": false, "a@": false, "ab": false, long(MaxEmailLen + 1): false, "a b@c": false, "a\x7f@c": false, "a\n@c": false,
	} {
		m := found(t)
		cmd := &CreateAccount{Account: Account{ID: "new", Email: email}}
		if good {
			m.must(cmd)
		} else {
			m.refused(cmd, ErrInvalid)
		}
	}
}
