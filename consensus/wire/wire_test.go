package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

// content is what the pins below name.
var content = cid.MustParse("bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e")

// every returns one command of each kind, with no field empty.
func every() []state.Command {
	node := state.Node{
		ID: "node", Name: "name", Addrs: []string{"/ip4/1.2.3.4"}, ClusterAddrs: []string{"/ip4/5.6.7.8"}, Version: "v1", Joined: 77,
	}
	leveled := node
	leveled.FeatureLevel, leveled.Store, leveled.Votes = 1, "store", true
	account := state.Account{ID: "account", Email: "a@b", PasswordHash: "hash", Created: 66}
	pin := state.Pin{
		ID: "request", Account: "account", Created: 1_700_000_000_000, Status: state.Queued, CID: content.String(),
		Given: state.GivenName | state.GivenMeta, Name: "näme", Origins: []string{"/dns/o"}, Meta: map[string]string{"b": "2", "a": "1"}, Detail: "d",
	}
	return append([]state.Command{
		&state.InitCluster{
			Cluster: state.Cluster{
				ID: "cluster", Created: 55, Replication: 3, WriteCopies: 2, SealedSigningKey: []byte{1, 2, 3}, Operator: "account",
			},
			Node: node, Operator: account,
		},
		&state.UpdateNode{Node: node},
		&state.CreateTicket{Ticket: state.Ticket{ID: "ticket", Created: 1, Expires: 2}},
		&state.JoinNode{Node: node, Ticket: "ticket", At: -3},
		&state.RemoveNode{ID: "node", Of: []state.NodeID{"node", "other"}, At: 7},
		&state.CreateAccount{Account: account},
		&state.CreateKey{Key: state.APIKey{
			ID: "jti", Account: "account", Name: "key", Scope: []string{state.ScopeRead}, Created: 4, Expires: 5,
		}, Expired: 6},
		&state.RevokeKey{Account: "account", ID: "jti"},
		&state.CreatePin{Pin: pin, Nodes: []state.NodeID{"n2", "node"}},
		&state.ReplacePin{Old: "old", Pin: pin, Nodes: []state.NodeID{"node"}},
		&state.DeletePin{Account: "account", ID: "request"},
		&state.ReportCopies{Node: "node", Items: []state.CopyReport{
			{Root: state.RootOf(content), Born: 9, Phase: state.Held, Size: 1 << 40, Blocks: 1000, Reason: "why"},
			{Root: "other", Born: 9, Phase: state.GaveUp, Seen: 300},
		}},
		&state.PlaceRoots{Items: []state.Placement{{Root: state.RootOf(content), Born: 9, Nodes: []state.NodeID{"n2", "node"}}}},
		&state.SettleRoots{Roots: []state.RootKey{state.RootOf(content), "other"}},
		&state.CheckState{At: 88},
		&state.ReportHash{Node: "node", Check: 15, Hash: state.Hash{0xde, 31: 0xad}},
		&state.GrantVote{Node: "node", Store: "store"},
		&state.RaiseLevel{FeatureLevel: 1},
		&state.UpdateNode{Node: leveled}, // a record of version 2
		&state.ByKey{Key: "jti", Change: &state.CreatePin{Pin: pin, Nodes: []state.NodeID{"n2", "node"}}},
		&state.ByKey{Key: "jti", Change: &state.ReplacePin{Old: "old", Pin: pin, Nodes: []state.NodeID{"node"}}},
		&state.ByKey{Key: "jti", Change: &state.DeletePin{Account: "account", ID: "request"}},
		&state.CreateSession{
			Session:  state.Session{ID: "session", Account: "account", Created: 1, Expires: 3, Idle: 2},
			Password: state.Hash{1, 31: 2},
		},
		&state.EndSession{ID: "session"},
		&state.NoteUses{Items: []state.Use{{Key: "jti", At: 7}, {Session: "session", At: 8}}},
		&state.BySession{Session: "session", Change: &state.CreatePin{Pin: pin, Nodes: []state.NodeID{"n2", "node"}}},
		&state.BySession{Session: "session", Change: &state.ReplacePin{Old: "old", Pin: pin, Nodes: []state.NodeID{"node"}}},
		&state.BySession{Session: "session", Change: &state.DeletePin{Account: "account", ID: "request"}},
		&state.RotateSigningKey{Sealed: []byte{1, 2, 3}},
		&state.CreateOnce{Key: state.Hash{3}, Change: &state.CreatePin{Pin: pin, Nodes: []state.NodeID{"n2", "node"}}},
		&state.CreateOnce{Key: state.Hash{3}, Change: &state.ByKey{Key: "jti", Change: &state.CreatePin{Pin: pin}}},
		&state.CreateOnce{Key: state.Hash{3}, Change: &state.BySession{Session: "session", Change: &state.CreatePin{Pin: pin}}},
		&state.OpenAccount{Account: account, Allowance: 1 << 40},
		&state.SetPassword{Account: "account", Hash: "hash"},
		&state.CloseAccount{Account: "account"},
		&state.ClearAccounts{Accounts: []state.AccountID{"account", "other"}},
		&state.SetQuota{Account: "account", Allowance: 1 << 40},
		&state.GrantCredits{Posting: state.Posting{ID: "posting", Account: "account", Credits: 7, Made: 8}},
		&state.ReportArrivals{Items: []state.Arrival{{Root: state.RootOf(content), Born: 9, Bytes: 1 << 40}}},
	}, slices.Concat(namings(), []state.Command{ // after those whose places in the log the others name
		&state.PlaceRoots{At: 300, Items: []state.Placement{{Root: "other", Born: 9, Nodes: []state.NodeID{"node"}, Held: []state.NodeID{"n2"}}}},
	}, namingsByKey(), namings5(), admins(), audits(), shares(), ledgers(), pinEnds(), drains(), payments(), graces(), access11(), conditions())...)
}

// namingsByKey returns the changes of the object gateway that somebody asks for, as they are
// proposed then.
func namingsByKey() (cmds []state.Command) {
	for i, cmd := range namings() {
		switch {
		case !state.Asked(cmd):
		case i%4 == 0:
			cmds = append(cmds, &state.BySession{Session: "session", Change: cmd})
		default:
			cmds = append(cmds, &state.ByKey{Key: "jti", Change: cmd})
		}
	}
	return cmds
}

var op = state.OpID{0xa, 0xb, 0xc, 0xd, 0xe, 0xf, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}

// Every kind of command is encoded as the bytes that the golden file has.
func TestEveryCommandKeepsItsBytes(t *testing.T) {
	var lines []string
	for _, cmd := range every() {
		b, err := EncodeCommand(Command{Op: op, Body: cmd})
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(reflect.TypeOf(cmd).String(), "*state.")
		lines = append(lines, fmt.Sprintf("%s %x", name, b))
	}
	golden(t, "commands.txt", lines)
}

// Every form of outcome is encoded as the bytes that the golden file has, and decodes to an equal outcome.
func TestEveryOutcomeKeepsItsBytes(t *testing.T) {
	var lines []string
	for name, o := range outcomes() {
		b, err := EncodeOutcome(o)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %x", name, b))
		back, err := DecodeOutcome(b)
		if err != nil || !reflect.DeepEqual(back, o) {
			t.Errorf("%s came back as %+v, %v", name, back, err)
		}
	}
	slices.Sort(lines)
	golden(t, "outcomes.txt", lines)
}

func outcomes() map[string]Outcome {
	pin := every()[8].(*state.CreatePin).Pin
	return map[string]Outcome{
		"nothing": {Index: 1},
		"pin":     {Index: 1 << 50, Result: state.Result{Pin: &pin}},
		"deeds":   {Index: 4, Result: state.Result{Deeds: []state.Deed{state.MadeVersion, state.MissedVersion}}},
		"made":    {Index: 5, Result: state.Result{Deeds: []state.Deed{state.MadeVersion}, Created: 11}},
		"error":   {Index: 300, Err: &state.Error{Code: state.CodeConflict, Detail: "moved on"}},
	}
}

// golden compares lines with those of a file, which -update writes.
func golden(t *testing.T, file string, lines []string) {
	t.Helper()
	goldentest.File(t, filepath.Join("testdata", file), []byte(strings.Join(lines, "\n")+"\n"))
}

// Every command of the golden file decodes to its operation id and an equal command.
func TestCommandsOfTheGoldenFileAreRead(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "commands.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, digits, _ := strings.Cut(line, " ")
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := DecodeCommand(b)
		if err != nil || cmd.Op != op || !reflect.DeepEqual(cmd.Body, every()[i]) {
			t.Errorf("%s came back as %+v, %v", name, cmd.Body, err)
		}
	}
}

// FeatureLevelOf returns the feature level that introduced a command or the change in it, whichever is higher. The
// level of UpdateNode and PlaceRoots depends on their fields, and a change of level 3 by a key or a session is of
// level 4.
func TestEveryCommandHasTheLevelOfItsNumber(t *testing.T) {
	for _, cmd := range every()[:len(every())-len(conditions())] {
		kind, err := kindOf(cmd)
		if err != nil {
			t.Fatal(err)
		}
		asked := kind
		switch by := cmd.(type) {
		case *state.ByKey:
			asked, err = kindOf(by.Change)
		case *state.BySession:
			asked, err = kindOf(by.Change)
		}
		if err != nil {
			t.Fatal(err)
		}
		var want state.FeatureLevel
		for _, first := range []uint16{kindCheckState, kindCreateSession, kindCreateBucket} {
			if max(kind, asked) >= first {
				want++
			}
		}
		if slices.ContainsFunc(namings5(), func(new state.Command) bool { return reflect.DeepEqual(new, cmd) }) {
			want = 5
		}
		if kind >= kindOpenFirstAdmin {
			want = 6
		}
		if kind >= kindAudited {
			want = 7
		}
		if max(kind, asked) >= kindCreateShare {
			want = 8
		}
		if kind >= kindPostCredits {
			want = 9
		}
		if slices.ContainsFunc(slices.Concat(pinEnds(), graces()), func(new state.Command) bool { return reflect.DeepEqual(new, cmd) }) {
			want = 10
		}
		if kind > kindChargeStorage {
			want = 10
		}
		if kind >= kindPackNames || slices.ContainsFunc(access11(), func(new state.Command) bool { return reflect.DeepEqual(new, cmd) }) {
			want = 11
		}
		if want == 3 && asked != kind {
			want = 4
		}
		switch cmd := cmd.(type) {
		case *state.UpdateNode:
			want = min(cmd.Node.FeatureLevel, 1)
		case *state.PlaceRoots:
			if cmd.At > 0 {
				want = 4
			}
		}
		if got := FeatureLevelOf(cmd); got != want {
			t.Errorf("%T (%d) is of level %d, want %d", cmd, kind, got, want)
		}
	}
}

// A put, copy, deletion or completion with a condition that level 4 did not have needs feature level 5.
func TestAChangeWithANewConditionIsOfLevel5(t *testing.T) {
	for _, cmd := range conditions() {
		if got := FeatureLevelOf(cmd); got != 5 {
			t.Errorf("%T is of level %d: %+v", cmd, got, cmd)
		}
	}
}

// A CompleteUpload of 10,000 parts and a DeleteObjects of 1,000 keys of the greatest length fit into a command.
// They decode to equal commands. Ids have the length that proposers mint.
func TestTheLargestChangesFitIntoACommand(t *testing.T) {
	id := strings.Repeat("i", 36)
	long := func(n int) string { return strings.Repeat("x", n) }
	object := state.Object{
		ID: state.VersionID(id), Key: long(state.MaxKeyBytes), Root: state.RootOf(content), Size: 1 << 42, Created: 1 << 40, ETag: long(state.MaxETagBytes),
		Headers: map[string]string{"A": long(state.MaxHeaderBytes / 2)}, Meta: map[string]string{"a": long(state.MaxHeaderBytes / 2)}, Upload: state.UploadID(id),
	}
	complete := &state.CompleteUpload{Account: state.AccountID(id), Bucket: long(63), Born: 1 << 60, Object: object}
	var parts []state.Part
	for i := range state.MaxPartNumber {
		parts = append(parts, state.Part{Number: uint16(i + 1), ID: state.VersionID(id)})
		complete.Object.Parts = append(complete.Object.Parts, state.PartRun{Size: 5<<30 - uint64(i), Count: 1})
	}
	complete.Parts = state.ListParts(parts)
	drop := &state.DeleteObjects{Account: state.AccountID(id), Bucket: long(63), Born: 1 << 60, Marker: state.VersionID(id), Created: 1 << 40}
	for range state.MaxDeleteKeys {
		drop.Keys = append(drop.Keys, long(state.MaxKeyBytes))
		drop.IDs = append(drop.IDs, "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
	}
	for _, cmd := range []state.Command{complete, drop} {
		b, err := EncodeCommand(Command{Op: op, Body: cmd})
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeCommand(b); err != nil || !reflect.DeepEqual(back.Body, cmd) {
			t.Errorf("%T came back as another one, %v", cmd, err)
		}
	}
}

// Every type of package state with an apply method has a number, and a command in every() and so in the golden
// file.
func TestEveryCommandHasANumber(t *testing.T) {
	covered := map[string]bool{}
	for _, cmd := range every() {
		covered[strings.TrimPrefix(reflect.TypeOf(cmd).String(), "*state.")] = true
	}
	files, err := filepath.Glob("../state/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of package state: %v", err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Name.Name != "apply" || fn.Recv == nil {
				continue
			}
			star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
			if !ok {
				continue
			}
			name := star.X.(*ast.Ident).Name
			found++
			if !covered[name] {
				t.Errorf("command %s is not tested here: give it the next number, and a line in every()", name)
			}
		}
	}
	if found != len(covered) {
		t.Errorf("%d commands in package state, %d here", found, len(covered))
	}
}

// notAudited says why commands leave no row in the audit log.
var notAudited = map[string]string{
	"ReservePayment": "the receipts keep each payment", "ReleasePayment": "the payment was not used", "CommitPayment": "the receipts keep each payment",
	"FailPayment": "the receipts keep each payment", "SweepPayments": "the receipts keep each payment", "EndPaidObjects": "the leader ends paid content by itself",
	"DeletePaidObject": "the receipts keep each payment", "ForgetPayments": "the leader removes receipts of failed payments by itself",
	"UpdateNode": "a member tells about itself at each start", "GrantVote": "the leader chooses voters by itself",
	"RaiseLevel": "the leader raises the level by itself", "CheckState": "members compare their states by themselves",
	"ReportHash": "members compare their states by themselves", "Fence": "a member's own bookkeeping",
	"CreatePin": "content, not access", "ReplacePin": "content, not access", "DeletePin": "content, not access", "CreateOnce": "creates a pin",
	"ReportCopies": "the cluster's upkeep of content", "PlaceRoots": "the cluster's upkeep of content", "SettleRoots": "the cluster's upkeep of content",
	"ReportArrivals": "the cluster's upkeep of content", "ClearAccounts": "ends what CloseAccount began", "ClearBuckets": "ends what DeleteBucket began",
	"ClearUploads": "the cluster's upkeep of content", "TurnBuckets": "ends what SetBucketPublic began",
	"NoteUses": "when a credential was used, not a change", "NoteUsage": "figures, not a change",
	"PutObject": "content, not access", "CopyObject": "content, not access", "DeleteObjects": "content, not access", "SetObjectTags": "content, not access",
	"SetBucketTags": "labels, not access", "SetVersioning": "how content is kept, not access", "SetObjectHash": "the cluster's upkeep of content",
	"SetObjectSums": "the cluster's upkeep of content", "CreateUpload": "content, not access", "AbortUpload": "content, not access", "DateUpload": "content, not access",
	"PutPart": "content, not access", "CopyPart": "content, not access", "CompleteUpload": "content, not access",
	"NoteRefusals": "writes its rows itself", "PruneAudit": "the log's own upkeep; its anchor shows it",
	"ChargeStorage": "the leader charges by itself; the ledger has each charge",
	"EndPins":       "content, not access; the account named the end",
	"IndexPins":     "the cluster's upkeep of an index",
	"PackNames":     "the cluster's upkeep of an index",
}

// Every command either has an action of the audit log or a reason in notAudited why it has none.
func TestEveryCommandIsAuditedOrSaysWhyNot(t *testing.T) {
	audited, seen := map[string]bool{}, map[string]bool{}
	for _, cmd := range every() {
		name := strings.TrimPrefix(reflect.TypeOf(cmd).String(), "*state.")
		seen[name] = true
		if state.ActionOf(cmd) != "" {
			audited[name] = true
		}
	}
	for name := range seen {
		why, excused := notAudited[name]
		switch {
		case audited[name] && excused:
			t.Errorf("%s is audited, and the table says: %s", name, why)
		case !audited[name] && !excused:
			t.Errorf("%s is not audited: name its action in state.ActionOf, or say here why it has none", name)
		}
	}
	for name := range notAudited {
		if !seen[name] {
			t.Errorf("there is no command %s", name)
		}
	}
}

// A log entry of no command, one command or all commands decodes to equal commands in the same order.
func TestEntryKeepsItsCommands(t *testing.T) {
	var bodies [][]byte
	for _, cmd := range every() {
		b, err := EncodeCommand(Command{Op: op, Body: cmd})
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, b)
	}
	for _, n := range []int{0, 1, len(bodies)} {
		entry, err := EncodeEntry(bodies[:n])
		if err != nil {
			t.Fatal(err)
		}
		commands, err := DecodeEntry(entry)
		if err != nil || len(commands) != n {
			t.Fatalf("%d commands came back as %d: %v", n, len(commands), err)
		}
		for i, cmd := range commands {
			if !reflect.DeepEqual(cmd, Command{Op: op, Body: every()[i]}) {
				t.Errorf("command %d came back as %+v", i, cmd)
			}
		}
	}
}

// DecodeCommand rejects bytes that are malformed, too long or of an unknown kind. EncodeEntry rejects more than
// MaxBatch commands, and EncodeCommand returns no command above MaxCommand bytes.
func TestWhatIsNoCommandIsRefused(t *testing.T) {
	good, err := EncodeCommand(Command{Op: op, Body: &state.DeletePin{Account: "a", ID: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	// What a CreateOnce holds is a pin, and nothing else that a key may ask for.
	once, err := EncodeCommand(Command{Op: op, Body: &state.ByKey{Key: "jti", Change: &state.DeletePin{Account: "a", ID: "r"}}})
	if err != nil {
		t.Fatal(err)
	}
	once = slices.Concat([]byte{kindCreateOnce}, once[1:17], make([]byte, 32), []byte{2}, once[17:])
	for _, tc := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, codec.ErrMalformed},
		{"kind 0", make([]byte, 17), codec.ErrMalformed},
		{"kind of a later release", append([]byte{200}, good[1:]...), ErrUnknownKind},
		{"cut short", good[:len(good)-1], codec.ErrMalformed},
		{"something after it", append(slices.Clone(good), 0), codec.ErrMalformed},
		{"a deletion once", once, codec.ErrMalformed},
		{"above the bound", make([]byte, MaxCommand+1), codec.ErrMalformed},
	} {
		if _, err := DecodeCommand(tc.b); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := EncodeEntry(make([][]byte, MaxBatch+1)); err == nil {
		t.Error("an entry of too many commands was encoded")
	}
	large := &state.ReportCopies{Items: make([]state.CopyReport, state.MaxReports)}
	for i := range large.Items {
		large.Items[i] = state.CopyReport{Reason: strings.Repeat("r", state.MaxReasonLen), Root: state.RootKey(strings.Repeat("k", state.MaxCIDLen))}
	}
	b, err := EncodeCommand(Command{Body: large})
	if err == nil && len(b) > MaxCommand {
		t.Errorf("a command of %d bytes was encoded", len(b))
	}
}

func seeds(f *testing.F) {
	f.Helper()
	for _, cmd := range every() {
		b, err := EncodeCommand(Command{Op: op, Body: cmd})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// What can be read is written back as something that reads the same, and
// applies to any state without breaking it.
func FuzzDecodeCommand(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		cmd, err := DecodeCommand(b)
		if err != nil {
			return
		}
		again, err := EncodeCommand(cmd)
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", cmd, err)
		}
		back, err := DecodeCommand(again)
		if err != nil || !reflect.DeepEqual(back, cmd) {
			t.Fatalf("%+v came back as %+v, %v", cmd, back, err)
		}
		store := founded(t)
		for index := range uint64(2) {
			_, err = state.Apply(store, 10+index, cmd.Op, cmd.Body, &state.Effects{})
			var refused *state.Error
			if err != nil && !errors.As(err, &refused) && !errors.Is(err, state.ErrTooOld) {
				t.Fatalf("%+v broke the state: %v", cmd, err)
			}
		}
	})
}

func FuzzDecodeEntry(f *testing.F) {
	for _, n := range []int{0, 1, 3} {
		b, err := EncodeEntry(slices.Repeat([][]byte{append([]byte{5}, make([]byte, 18)...)}, n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		commands, err := DecodeEntry(b)
		if err != nil {
			return
		}
		bodies := make([][]byte, len(commands))
		for i, cmd := range commands {
			if bodies[i], err = EncodeCommand(cmd); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := EncodeEntry(bodies); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecodeOutcome(f *testing.F) {
	for _, o := range outcomes() {
		b, err := EncodeOutcome(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeOutcome(b)
		if err != nil {
			return
		}
		again, err := EncodeOutcome(o)
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", o, err)
		}
		if back, err := DecodeOutcome(again); err != nil || !reflect.DeepEqual(back, o) {
			t.Fatalf("%+v came back as %+v, %v", o, back, err)
		}
	})
}

// sorted is a small ordered store.
type sorted struct{ keys, values []string }

func (s *sorted) find(key []byte) (int, bool) { return slices.BinarySearch(s.keys, string(key)) }

func (s *sorted) Get(key []byte) ([]byte, bool, error) {
	i, ok := s.find(key)
	if !ok {
		return nil, false, nil
	}
	return []byte(s.values[i]), true, nil
}

func (s *sorted) Set(key, value []byte) error {
	i, ok := s.find(key)
	if ok {
		s.values[i] = string(value)
		return nil
	}
	s.keys, s.values = slices.Insert(s.keys, i, string(key)), slices.Insert(s.values, i, string(value))
	return nil
}

func (s *sorted) Delete(key []byte) error {
	if i, ok := s.find(key); ok {
		s.keys, s.values = slices.Delete(s.keys, i, i+1), slices.Delete(s.values, i, i+1)
	}
	return nil
}

func (s *sorted) Scan(lower, upper []byte, _ bool, fn func(k, v []byte) (bool, error)) error {
	for i := range s.keys {
		k := []byte(s.keys[i])
		if bytes.Compare(k, lower) < 0 || upper != nil && bytes.Compare(k, upper) >= 0 {
			continue
		}
		if more, err := fn(k, []byte(s.values[i])); err != nil || !more {
			return err
		}
	}
	return nil
}

// founded returns a state in which most commands of every() find what they speak of.
func founded(t *testing.T) *sorted {
	t.Helper()
	s := &sorted{}
	for i, cmd := range every()[:len(every())-len(conditions())] {
		switch cmd.(type) {
		case *state.DeletePin, *state.RevokeKey, *state.DeleteObjects, *state.AbortUpload:
			continue
		case *state.ByKey, *state.BySession:
			if FeatureLevelOf(cmd) == 4 { // the same once more
				continue
			}
		}
		_, err := state.Apply(s, uint64(i+1), state.OpID{}, cmd, &state.Effects{})
		var refused *state.Error
		if err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	return s
}

// The state that the fuzz test applies commands to has a pinned root that three objects and two parts link. The
// fuzzing above would mean little without it.
func TestStateOfTheFuzzingHasContent(t *testing.T) {
	root, err := state.NewView(founded(t), 0).Root(state.RootOf(content))
	if err != nil || root.Status != state.Pinned {
		t.Errorf("root %+v, %v", root, err)
	}
	if root.Links != 5 { // three objects and two parts
		t.Errorf("%d objects and parts name the content", root.Links)
	}
}
