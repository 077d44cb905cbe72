package state

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// A walk by Sparse and SparseAfter finds every sparse key of a store and skips some of the others. Sparse are the
// keys of operations, of pins by request, of roots with their marks of settling and their arrivals, of disabled
// accounts and of current objects.
func TestSparseKeysAreFoundWithoutReadingTheOthers(t *testing.T) {
	long := strings.Repeat("a", MaxIDLen)
	var sparse, others [][]byte
	for _, account := range []AccountID{"", "a", "b", AccountID(long), "\xff\xff"} {
		for _, id := range []RequestID{"", "1", RequestID(long)} {
			p := Pin{ID: id, Account: account, Created: 1, Status: Queued, CID: contents[0]}
			sparse = append(sparse, locatorKey(account, id))
			others = append(others, rowKey(&p), cidIndex(account, RootKey("x").Cid()), nameIndex(account, "r"),
				counterKey(account, Queued, 0, 1), pinKey(account, pinLast), accountKey(account), emailKey(string(account)))
		}
	}
	for _, op := range []OpID{{}, {1}, {0xff}} {
		sparse = append(sparse, opKey(op))
		others = append(others, opOrderKey(uint64(op[0])))
	}
	for _, root := range []RootKey{"", "r", RootKey(long)} {
		sparse = append(sparse, rootKey(root), settlingKey(root), shortKey(root), disabledKey(AccountID(root)), arrivedKey(root))
		others = append(others, retainedPrefix(root), linkKey(root, "r", "r"), originKey(&Pin{ID: "r", Account: "r"}, root))
	}
	b := Bucket{Account: "r", Name: "bucket", Born: 0x72}
	for _, key := range []string{"r", long, "\x00"} {
		sparse = append(sparse, b.objectKey(key))
	}
	u := Upload{ID: "r", Key: "r", Created: 1}
	others = append(others, bucketKey("r", "r"), bornKey("r"), b.uploadKey("r", "r"), b.partKey("r", 'r'), b.stored(storedKeys),
		b.begunKey(&u), emptyingKey("r", 'r'), b.endedKey("r"), fenceKey("r"))
	others = append(others, clusterKey, nodeKey("n"), wantedOn("n"), apiKeyKey("j"),
		[]byte{}, []byte{0x00}, []byte("P"), []byte("P\x00"), []byte("P\x00\x01"), []byte("P\x00\x01a"), []byte("P\xff\xffr"))
	all := slices.SortedFunc(slices.Values(slices.Concat(sparse, others)), bytes.Compare)
	for _, k := range all {
		if want := slices.ContainsFunc(sparse, func(s []byte) bool { return bytes.Equal(s, k) }); Sparse(k) != want {
			t.Errorf("%x: sparse is %t", k, !want)
		}
	}
	read := 0
	var found [][]byte
	for i := 0; i < len(all); read++ {
		if k := all[i]; Sparse(k) {
			found = append(found, k)
		} else if next := SparseAfter(k); bytes.Compare(next, k) > 0 {
			i, _ = slices.BinarySearchFunc(all, next, bytes.Compare)
			continue
		}
		i++
	}
	slices.SortFunc(sparse, bytes.Compare)
	if !slices.EqualFunc(found, sparse, bytes.Equal) {
		t.Errorf("%d of %d sparse keys were found", len(found), len(sparse))
	}
	if read == len(all) {
		t.Error("nothing was skipped")
	}
}
