package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Helia is a running IPFS peer of Helia, the implementation of IPFS in JavaScript.
type Helia struct {
	Addrs []string

	tb    testing.TB
	proc  *process
	input io.WriteCloser

	// mu guards the fields below. It is never held while waiting for an answer.
	mu      sync.Mutex
	next    int
	waiting map[int]chan heliaAnswer
}

type heliaOrder struct {
	N     int      `json:"n"`
	Do    string   `json:"do"`
	Count int      `json:"count,omitempty"`
	Size  int      `json:"size,omitempty"`
	CID   string   `json:"cid,omitempty"`
	From  []string `json:"from,omitempty"`
}

type heliaAnswer struct {
	N     int       `json:"n"`
	Files []Offered `json:"files"`
	Error string    `json:"error"`
}

// StartHelia runs dir/peer.mjs with Node.js and the packages that dir/package-lock.json names. The
// peer is ended at the end of the test.
func StartHelia(tb testing.TB, dir string) *Helia {
	tb.Helper()
	modules, script := Script(tb, dir, "peer.mjs")
	cmd := exec.Command(NodeProgram(modules, NodeCurrent), script)
	cmd.Dir, cmd.Env = modules, environment(tb.TempDir(), nil)
	read, input, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stdin = read
	out, logs, proc := startPiped(tb, cmd, nil)
	read.Close()
	h := &Helia{tb: tb, proc: proc, input: input, waiting: map[int]chan heliaAnswer{}}
	var line struct {
		ID    string   `json:"id"`
		Addrs []string `json:"addrs"`
	}
	lines := bufio.NewReader(out)
	readLine(tb, proc, lines, logs, &line)
	h.Addrs = line.Addrs
	answersRead := make(chan struct{})
	go func() {
		defer close(answersRead)
		h.readAnswers(lines)
	}()
	// Registered last, so it runs first: the child ends when its input does.
	tb.Cleanup(func() {
		input.Close()
		proc.end(tb)
		<-answersRead
	})
	return h
}

// readAnswers passes each answer of the peer to the call that waits for it, until the process ends.
func (h *Helia) readAnswers(r *bufio.Reader) {
	for {
		line, err := r.ReadBytes('\n')
		var a heliaAnswer
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		h.mu.Lock()
		if err != nil {
			for n, ch := range h.waiting {
				ch <- heliaAnswer{N: n, Error: "helia ended: " + err.Error()}
			}
			h.waiting = nil
			h.mu.Unlock()
			return
		}
		if ch, ok := h.waiting[a.N]; ok {
			ch <- a
			delete(h.waiting, a.N)
		}
		h.mu.Unlock()
	}
}

// errHeliaEnded means that the process of the peer has ended.
var errHeliaEnded = errors.New("helia has ended")

func (h *Helia) do(o heliaOrder) ([]Offered, error) {
	answer := make(chan heliaAnswer, 1)
	h.mu.Lock()
	if h.waiting == nil {
		h.mu.Unlock()
		return nil, errHeliaEnded
	}
	h.next++
	o.N = h.next
	h.waiting[o.N] = answer
	line, err := json.Marshal(o)
	if err == nil {
		_, err = h.input.Write(append(line, '\n')) // small: never fills the pipe
	}
	h.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("helia: %w", err)
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return nil, fmt.Errorf("helia %s: %s", o.Do, a.Error)
		}
		return a.Files, nil
	case <-time.After(foreignTimeout):
		return nil, fmt.Errorf("helia %s: no answer within %s", o.Do, foreignTimeout)
	}
}

// Origins returns the multiaddrs of the peer, with /p2p/.
func (h *Helia) Origins() []string { return h.Addrs }

// AddRandom adds count random files of size bytes.
func (h *Helia) AddRandom(count, size int) []Offered {
	h.tb.Helper()
	files, err := h.do(heliaOrder{Do: "add", Count: count, Size: size})
	if err != nil {
		h.tb.Fatal(err)
	}
	return files
}

// Fetch connects to the peers at the multiaddrs in from and fetches the file by bitswap.
func (h *Helia) Fetch(cid string, from []string) (Offered, error) {
	files, err := h.do(heliaOrder{Do: "fetch", CID: cid, From: from})
	if err != nil {
		return Offered{}, err
	}
	return files[0], nil
}

// Close ends the process of the peer.
func (h *Helia) Close() {
	h.input.Close()
	h.proc.end(h.tb)
}
