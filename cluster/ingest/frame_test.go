package ingest

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
)

// golden are frames of each kind, in the order of the file.
func golden(tb testing.TB) (names []string, frames [][]byte) {
	leaf, err := dag.Leaf([]byte("some bytes"))
	if err != nil {
		tb.Fatal(err)
	}
	add := func(name string, b []byte) {
		names, frames = append(names, name), append(frames, b)
	}
	add("begin", appendBegin(nil, putID{0: 1, 15: 2}))
	add("block", append(appendBlockHead(nil, leaf), leaf.RawData()...))
	add("end", appendEnd(nil, end{root: leaf.Cid(), sources: []state.NodeID{"a", "bc"}}))
	add("end without sources", appendEnd(nil, end{root: leaf.Cid()}))
	add("renew", appendBare(nil, kindRenew))
	add("committed", appendDone(nil, outcomeCommitted))
	add("given up", appendDone(nil, outcomeGivenUp))
	add("kept", appendKept(nil, kept{epoch: 7, bytes: 1 << 40, blocks: 300}))
	add("refused", appendRefused(nil, state.CodeNoSpace, "the disk is full"))
	add("working", appendBare(nil, kindWorking))
	return names, frames
}

// The bytes of all kinds of frames are those of the golden file.
func TestFramesAreAsTheyWere(t *testing.T) {
	names, frames := golden(t)
	var text strings.Builder
	for i, name := range names {
		fmt.Fprintf(&text, "%s: %s\n", name, hex.EncodeToString(frames[i]))
	}
	goldentest.File(t, "testdata/frames.txt", []byte(text.String()))
}

// decode reads a frame, and what it says, and writes it again.
func decode(data []byte) (again []byte, err error) {
	f, err := readFrame(bufio.NewReader(bytes.NewReader(data)))
	if err != nil {
		return nil, err
	}
	switch f.kind {
	case kindBegin:
		id, err := parseBegin(f.body)
		return appendBegin(nil, id), err
	case kindBlock:
		b, err := parseBlock(f.body)
		if err != nil {
			return nil, err
		}
		return append(appendBlockHead(nil, b), b.RawData()...), nil
	case kindEnd:
		e, err := parseEnd(f.body)
		if err != nil {
			return nil, err
		}
		return appendEnd(nil, e), nil
	case kindDone:
		outcome, err := parseDone(f.body)
		return appendDone(nil, outcome), err
	case kindKept:
		k, err := parseKept(f.body)
		return appendKept(nil, k), err
	case kindRefused:
		refused := parseRefused(f.body)
		var why *state.Error
		if !errors.As(refused, &why) {
			return nil, refused
		}
		return appendRefused(nil, why.Code, why.Detail), nil
	default:
		return appendBare(nil, f.kind), nil
	}
}

// Each frame is read as it was written, and a frame that is cut or too long is an error.
func TestFramesAreReadAsTheyAreWritten(t *testing.T) {
	names, frames := golden(t)
	for i, b := range frames {
		again, err := decode(b)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: %x, read as %x: %v", names[i], b, again, err)
		}
		for cut := range b {
			_, err := decode(b[:cut])
			if want := io.EOF; cut == 0 && !errors.Is(err, want) || cut > 0 && !errors.Is(err, errFrame) {
				t.Errorf("%s: %d bytes of it are %v", names[i], cut, err)
			}
		}
		longer := append(bytes.Clone(b), 0)
		longer[headBytes-1]++
		if _, err := decode(longer); err == nil && b[0] != kindBlock && b[0] != kindRefused {
			t.Errorf("%s: a longer one is read", names[i])
		}
	}
}

// What can be read can be written, and is read the same.
func FuzzFrame(f *testing.F) {
	_, frames := golden(f)
	for _, b := range frames {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		again, err := decode(data)
		if err != nil {
			return
		}
		third, err := decode(again)
		if err != nil || !bytes.Equal(third, again) {
			t.Errorf("%x is read as %x, and that as %x: %v", data, again, third, err)
		}
	})
}
