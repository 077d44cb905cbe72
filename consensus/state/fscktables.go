package state

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// fsckTable is how Fsck shows and checks the rows of a table.
type fsckTable struct {
	name  string // for people, singular
	parts string // form of the key after the table byte, one letter for each part; see keyText
	check func(*fsck) error
}

// fsckTableOf returns how Fsck checks a table, or false if there is no such table.
func fsckTableOf(t byte) (fsckTable, bool) {
	for _, group := range []func(byte) (fsckTable, bool){fsckPinTable, fsckObjectTable, fsckAccountTable, fsckClusterTable} {
		if of, ok := group(t); ok {
			return of, true
		}
	}
	return fsckTable{}, false
}

func fsckPinTable(t byte) (of fsckTable, ok bool) {
	switch t {
	case tablePins:
		of = fsckTable{"pin", "a/", (*fsck).pins}
	case tableNames:
		of = fsckTable{"packed pins", "a/", (*fsck).packedPins}
	case tablePinEnd:
		of = fsckTable{"end of a pin", "tas", (*fsck).indexRow}
	case tableRoot:
		of = fsckTable{"root", "r", (*fsck).roots}
	case tableAttached:
		of = fsckTable{"pin of a root", "ras", (*fsck).attached}
	case tableOrigin:
		of = fsckTable{"pin with origins of a root", "radx", (*fsck).indexRow}
	case tableBounded:
		of = fsckTable{"pin of a root that bounds its size", "ras", (*fsck).indexRow}
	case tableWanted:
		of = fsckTable{"copy of a root on a node", "sr", (*fsck).indexRow}
	case tableSettling:
		of = fsckTable{"root whose pins are being changed", "r", (*fsck).settling}
	case tableShort:
		of = fsckTable{"root with too few copies", "r", (*fsck).short}
	case tableSurplus:
		of = fsckTable{"root with too many copies", "r", (*fsck).surplus}
	case tableRetained:
		of = fsckTable{"replaced root that is kept", "rr", (*fsck).retainedRow}
	case tableArrived:
		of = fsckTable{"arrived bytes of a root", "r", (*fsck).arrivedRow}
	case tableCharge:
		of = fsckTable{"charge", "ar", (*fsck).charge}
	case tableLink:
		of = fsckTable{"version or part of a root", "ras", (*fsck).link}
	}
	return of, of.check != nil
}

func fsckObjectTable(t byte) (of fsckTable, ok bool) {
	switch t {
	case tableBucket:
		of = fsckTable{"bucket", "as", (*fsck).bucketRow}
	case tableBorn:
		of = fsckTable{"newest bucket of an account", "a", (*fsck).born}
	case tableObject:
		of = fsckTable{"object", "aux", (*fsck).object}
	case tableVersion:
		of = fsckTable{"noncurrent version", "auod", (*fsck).oldVersion}
	case tableVersionTime:
		of = fsckTable{"time of a noncurrent version", "auox", (*fsck).indexRow}
	case tableUpload:
		of = fsckTable{"upload", "auox", (*fsck).uploadRow}
	case tablePart:
		of = fsckTable{"part", "ausn", (*fsck).part}
	case tableBegun:
		of = fsckTable{"open upload by time", "uaus", (*fsck).indexRow}
	case tableEnded:
		of = fsckTable{"ended upload", "aus", (*fsck).ended}
	case tableStored:
		of = fsckTable{"counter of a bucket", "aux", (*fsck).counterRow}
	case tableEmptying:
		of = fsckTable{"deleted bucket with uploads", "au", (*fsck).emptying}
	case tableTurning:
		of = fsckTable{"bucket whose setting has changed", "as", (*fsck).turning}
	case tablePartSums:
		of = fsckTable{"checksums of parts", "auox", (*fsck).partSums}
	case tableUnhashed:
		of = fsckTable{"version without its hash", "auox", (*fsck).unhashed}
	case tableCors:
		of = fsckTable{"CORS rules", "au", (*fsck).cors}
	case tableBucketTags:
		of = fsckTable{"tags of a bucket", "au", (*fsck).bucketTags}
	case tableShare:
		of = fsckTable{"share", "aux", (*fsck).share}
	case tableShareKey:
		of = fsckTable{"key of a share", "s", (*fsck).indexRow}
	case tablePaid:
		of = fsckTable{"payment", "/", (*fsck).paid}
	}
	return of, of.check != nil
}

func fsckAccountTable(t byte) (of fsckTable, ok bool) {
	switch t {
	case tableAccount:
		of = fsckTable{"account", "a", (*fsck).accountRow}
	case tableEmail:
		of = fsckTable{"e-mail address", "s", (*fsck).indexRow}
	case tableKey:
		of = fsckTable{"API key", "s", (*fsck).apiKey}
	case tableKeysOf:
		of = fsckTable{"API key of an account", "as", (*fsck).indexRow}
	case tableMadeBy:
		of = fsckTable{"signing key of an API key", "s", (*fsck).madeBy}
	case tableSession:
		of = fsckTable{"session", "s", (*fsck).session}
	case tableSessionsOf:
		of = fsckTable{"session of an account", "as", (*fsck).indexRow}
	case tableUse:
		of = fsckTable{"last use", "cs", (*fsck).use}
	case tableOnce:
		of = fsckTable{"remembered request", "a/", (*fsck).once}
	case tableQuota:
		of = fsckTable{"quota", "a", (*fsck).quota}
	case tablePosting:
		of = fsckTable{"posting", "as", (*fsck).posting}
	case tableLedger:
		of = fsckTable{"order of the ledger", "ai", (*fsck).ledgerRow}
	case tableOwed:
		of = fsckTable{"owed fraction of a credit", "a", (*fsck).numberOfAccount}
	case tableRequests:
		of = fsckTable{"requests to charge", "a", (*fsck).numberOfAccount}
	case tableDry:
		of = fsckTable{"account without credits", "a", (*fsck).numberOfAccount}
	case tableClosing:
		of = fsckTable{"closed account", "a", (*fsck).closing}
	case tableAdmin:
		of = fsckTable{"administrator", "a", (*fsck).administrator}
	case tableNoAdmin:
		of = fsckTable{"address of no administrator", "s", (*fsck).noAdmin}
	case tableDisabled:
		of = fsckTable{"disabled account", "a", (*fsck).disabled}
	case tableIdentity:
		of = fsckTable{"identity", "s", (*fsck).identity}
	case tableIdentityOf:
		of = fsckTable{"identity of an account", "as", (*fsck).indexRow}
	case tableOneTime:
		of = fsckTable{"one-time link", "s", (*fsck).oneTime}
	case tableUsage:
		of = fsckTable{"usage of a day", "au", (*fsck).usage}
	case tableApp:
		of = fsckTable{"app", "o", (*fsck).app}
	}
	return of, of.check != nil
}

func fsckClusterTable(t byte) (of fsckTable, ok bool) {
	switch t {
	case tableNode:
		of = fsckTable{"member", "s", (*fsck).node}
	case tableDrain:
		of = fsckTable{"drain", "s", (*fsck).drain}
	case tableTicket:
		of = fsckTable{"join ticket", "s", (*fsck).ticket}
	case tableFence:
		of = fsckTable{"epoch of a member", "s", (*fsck).numberOfMember}
	case tableCounted:
		of = fsckTable{"counted requests of a member", "s", (*fsck).numberOfMember}
	case tableQuarantine:
		of = fsckTable{"quarantined member", "s", (*fsck).quarantine}
	case tableCheck:
		of = fsckTable{"check of the state", "u", (*fsck).checkRow}
	case tableMeta:
		of = fsckTable{"record or counter of the cluster", "m", (*fsck).meta}
	case tableOp:
		of = fsckTable{"result of an operation", "x", (*fsck).op}
	case tableOpOrder:
		of = fsckTable{"order of operations", "u", (*fsck).opOrder}
	case tableAudit:
		of = fsckTable{"audit row", "u", (*fsck).auditRow}
	}
	return of, of.check != nil
}

// indexRow checks a row whose key and value can be computed from a record.
func (c *fsck) indexRow() error { c.stored(); return nil }

// counterRow checks a row with a counter of records.
func (c *fsck) counterRow() error { c.counter(); return nil }

// differenceAt returns a Difference with the table and the key of a row.
func differenceAt(k key) Difference {
	if len(k) == 0 {
		return Difference{Table: "state"}
	}
	of, ok := fsckTableOf(k[0])
	if !ok {
		return Difference{Table: fmt.Sprintf("table %q", k[0]), Key: valueText(k[1:])}
	}
	return Difference{Table: of.name, Key: keyText(k[0], of.parts, k[1:])}
}

// keyText returns the parts of a key in a table as text. The letters in parts mean: a an account, s a
// string, r a root, u a number, i an inverted number, t a time, d an inverted time, n a number of 2
// bytes, c one of 1 byte, o an ordered string, p a pair of meta, m a name in tableMeta, x the rest. A
// slash is the byte that tells the form of the rest, see innerForm.
func keyText(t byte, parts string, rest []byte) string {
	var all []string
	for ; parts != "" && len(rest) > 0; parts = parts[1:] {
		form := rune(parts[0])
		if form == '/' {
			if name, inner := innerForm(t, rest[0]); name != "" {
				all, rest, parts = append(all, name), rest[1:], "/"+inner
				continue
			}
			break
		}
		text, next, ok := keyPart(form, rest)
		if !ok {
			return strings.Join(append(all, valueText(rest)), " ")
		}
		all, rest = append(all, text), next
	}
	if len(rest) > 0 {
		all = append(all, valueText(rest))
	}
	return strings.Join(all, " ")
}

// innerForm returns the name and the form of the rows of a table whose keys have a byte, or "".
func innerForm(t, b byte) (name, parts string) {
	for _, of := range []struct {
		table, b    byte
		name, parts string
	}{
		{tablePins, pinByID, "by id", "s"}, {tablePins, pinRow, "record", "cdx"}, {tablePins, pinByCID, "by CID", "rd"},
		{tablePins, pinByName, "by name", "sd"}, {tablePins, pinByMeta, "by pair", "pd"}, {tablePins, pinCounter, "counter of status", "cci"},
		{tablePins, pinMetaCounter, "counter of pair", "pci"}, {tablePins, pinLast, "newest", ""},
		{tableNames, namesTo, "up to", ""}, {tableNames, namesChunk, "names from", "dc"}, {tableNames, namesRun, "run from", "dc"}, {tableNames, namesPair, "bits of pair", "pd"},
		{tableOnce, 'k', "record", "x"}, {tableOnce, 't', "by time", "t"}, {tableOnce, '#', "counter", ""},
		{tablePaid, paidRow, "record", "ssss"}, {tablePaid, paidByTime, "by time", "dssss"}, {tablePaid, paidSum, "total of state", "css"},
		{tablePaid, paidReserved, "reserved", "tssss"}, {tablePaid, paidFailed, "failed", "tssss"}, {tablePaid, paidClaim, "of object", "sssss"},
		{tablePaid, paidOwner, "owner of", "s"}, {tablePaid, paidEnds, "end of object", "tx"}, {tablePaid, paidEnded, "ended object", "tx"},
	} {
		if of.table == t && of.b == b {
			return of.name, of.parts
		}
	}
	return "", ""
}

// metaName returns the name of a row of tableMeta.
func metaName(k []byte) string {
	if name, id, ok := bytes.Cut(k, []byte("/")); ok {
		if node, rest, err := readPart[string](id); err == nil && len(rest) == 0 {
			return string(name) + " " + node
		}
	}
	if n, ok := bytes.CutPrefix(k, []byte("signed")); ok && len(n) == 8 {
		return fmt.Sprint("signed ", binary.BigEndian.Uint64(n))
	}
	return textOrHex(k)
}

func keyPart(form rune, k []byte) (text string, rest []byte, ok bool) {
	var err error
	switch form {
	case 'a', 's', 'r':
		var s string
		s, rest, err = readPart[string](k)
		if form == 'r' {
			return RootKey(s).String(), rest, err == nil
		}
		return textOrHex([]byte(s)), rest, err == nil
	case 'o':
		var s string
		s, rest, err = readOrdered(k)
		return textOrHex([]byte(s)), rest, err == nil
	case 'u', 't', 'd', 'i':
		if len(k) < 8 {
			return "", nil, false
		}
		n := binary.BigEndian.Uint64(k)
		if form == 'd' || form == 'i' {
			n = ^n
		}
		if form == 't' || form == 'd' {
			return Millis(n).Time().Format("2006-01-02T15:04:05.000Z"), k[8:], true
		}
		return fmt.Sprint(n), k[8:], true
	case 'n':
		if len(k) < 2 {
			return "", nil, false
		}
		return fmt.Sprint(binary.BigEndian.Uint16(k)), k[2:], true
	case 'c':
		return fmt.Sprint(k[0]), k[1:], true
	case 'p':
		if len(k) < len(pair{}) {
			return "", nil, false
		}
		return hex.EncodeToString(k[:len(pair{})]), k[len(pair{}):], true
	case 'm':
		return metaName(k), nil, true
	}
	return textOrHex(k), nil, true
}

// maxShown is the largest number of bytes of a key's part or of a value that Fsck shows.
const maxShown = 64

// textOrHex returns readable text unchanged and other bytes in hexadecimal.
func textOrHex(b []byte) string {
	readable := len(b) > 0 && utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return r <= ' ' || r == 0x7f })
	switch {
	case readable && len(b) <= maxShown:
		return string(b)
	case readable:
		return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(string(b[:maxShown]), ""), len(b))
	case len(b) <= maxShown:
		return "0x" + hex.EncodeToString(b)
	}
	return fmt.Sprintf("0x%x... (%d bytes)", b[:maxShown], len(b))
}

// valueText returns the value of a row as text.
func valueText(b []byte) string {
	switch len(b) {
	case 0:
		return "a row"
	case 8:
		return fmt.Sprint(binary.BigEndian.Uint64(b))
	}
	return textOrHex(b)
}
