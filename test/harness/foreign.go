package harness

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// foreignTimeout bounds one order to a foreign peer, fetches included.
const foreignTimeout = 3 * time.Minute

// readyLineWithin bounds how long a foreign peer may take to start.
const readyLineWithin = 60 * time.Second

// Offered is a file or DAG that a foreign peer holds or has fetched.
type Offered struct {
	CID    string `json:"cid"`
	Size   int    `json:"size"`   // bytes of the file
	SHA256 string `json:"sha256"` // hex, of the file's bytes
	Blocks int    `json:"blocks"` // of the DAG, where known
	Bytes  int    `json:"bytes"`  // of those blocks
}

// fileOf returns a file of these bytes, whose blocks are not known.
func fileOf(cid string, data []byte) Offered {
	sum := sha256.Sum256(data)
	return Offered{CID: cid, Size: len(data), SHA256: hex.EncodeToString(sum[:])}
}

// Matches says whether data are the file's bytes.
func (o Offered) Matches(data []byte) bool { return fileOf(o.CID, data).SHA256 == o.SHA256 }

// Foreign is an IPFS peer that is not Holdfast: boxo's, Helia or Kubo.
type Foreign interface {
	// Origins are its multiaddrs with /p2p/.
	Origins() []string
	// AddRandom adds count random files of size bytes.
	AddRandom(count, size int) []Offered
	// Fetch reads a DAG from the peers at these multiaddrs.
	Fetch(cid string, from []string) (Offered, error)
	// Close ends the process.
	Close()
}

// Boxo is the foreign peer of test/foreign.
type Boxo struct {
	Addrs []string

	tb      testing.TB
	control string
	http    *http.Client
	proc    *process
}

// StartBoxo starts a peer with flags of test/foreign; it ends with the test.
func StartBoxo(tb testing.TB, flags ...string) *Boxo {
	tb.Helper()
	return startBoxo(tb, nil, flags)
}

func startBoxo(tb testing.TB, in *namespace, flags []string) *Boxo {
	tb.Helper()
	cmd := exec.Command(binary(tb, foreignVariable), flags...)
	dir := tb.TempDir()
	cmd.Env, cmd.Dir = environment(dir, nil), dir
	out, logs, proc := startPiped(tb, cmd, in)
	var line struct {
		ID      string   `json:"id"`
		Addrs   []string `json:"addrs"`
		Control string   `json:"control"`
	}
	readLine(tb, proc, bufio.NewReader(out), logs, &line)
	transport := in.transport()
	tb.Cleanup(transport.CloseIdleConnections)
	return &Boxo{
		Addrs: line.Addrs, tb: tb, control: line.Control, proc: proc,
		http: &http.Client{Transport: transport, Timeout: foreignTimeout},
	}
}

// As returns the same peer for a subtest.
func (b *Boxo) As(tb testing.TB) *Boxo {
	other := *b
	other.tb = tb
	return &other
}

// startPiped starts cmd in a namespace, nil is the test's, with its standard
// output as a stream and its standard error kept, and ends it with the test.
func startPiped(tb testing.TB, cmd *exec.Cmd, in *namespace) (io.Reader, *tail, *process) {
	tb.Helper()
	logs := &tail{}
	cmd.Stderr = logs
	// A pipe of our own: Wait must not close it while lines are read.
	out, into, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stdout = into
	proc, err := startProcess(cmd, in)
	into.Close()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		proc.end(tb)
		out.Close()
		if tb.Failed() {
			tb.Logf("--- end of the log of %s\n%s", cmd.Path, logs)
		}
	})
	return out, logs, proc
}

// readLine reads one JSON line of a process that has just started.
func readLine(tb testing.TB, proc *process, r *bufio.Reader, logs *tail, into any) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), readyLineWithin)
	defer cancel()
	// The child closes the pipe when it ends, so the read below ends too.
	stop := context.AfterFunc(ctx, func() { _ = proc.signal(os.Kill) })
	defer stop()
	line, err := r.ReadBytes('\n')
	if err != nil {
		tb.Fatalf("%s printed no first line: %v\n%s", proc.cmd.Path, err, logs)
	}
	if err := json.Unmarshal(line, into); err != nil {
		tb.Fatalf("%s printed %q: %v", proc.cmd.Path, line, err)
	}
}

// Origins returns the peer's multiaddrs.
func (b *Boxo) Origins() []string { return b.Addrs }

// Pid returns the process id.
func (b *Boxo) Pid() int { return b.proc.cmd.Process.Pid }

// Close ends the process.
func (b *Boxo) Close() { b.proc.end(b.tb) }

// AddRandom adds count random files of size bytes in chunks of 256 KiB.
func (b *Boxo) AddRandom(count, size int) []Offered {
	b.tb.Helper()
	return b.AddRandomChunked(count, size, 256<<10)
}

// AddRandomChunked is AddRandom with the chunk size.
func (b *Boxo) AddRandomChunked(count, size, chunk int) []Offered {
	b.tb.Helper()
	var files []Offered
	b.order("/add?count="+strconv.Itoa(count)+"&size="+strconv.Itoa(size)+"&chunk="+strconv.Itoa(chunk), nil, &files)
	return files
}

// AddBytes adds one file.
func (b *Boxo) AddBytes(data []byte) Offered {
	b.tb.Helper()
	var files []Offered
	b.order("/add", data, &files)
	return files[0]
}

// AddFolder adds a folder with one file, which is called file.
func (b *Boxo) AddFolder(data []byte) Offered {
	b.tb.Helper()
	var f Offered
	b.order("/folder", data, &f)
	return f
}

// AddDAG adds a random tree of dag-cbor, dag-json or dag-pb nodes.
func (b *Boxo) AddDAG(codec string, width, depth int) Offered {
	b.tb.Helper()
	var f Offered
	b.order(fmt.Sprintf("/dag?codec=%s&width=%d&depth=%d", codec, width, depth), nil, &f)
	return f
}

// Fetch connects to the peers and reads the DAG over bitswap.
func (b *Boxo) Fetch(cid string, from []string) (Offered, error) {
	body, err := json.Marshal(map[string]any{"cid": cid, "from": from})
	if err != nil {
		return Offered{}, err
	}
	var f Offered
	err = b.post("/fetch", body, &f)
	return f, err
}

// Overload has the counts of what unknown peers tried on a node, see Boxo.Overload.
type Overload struct {
	Dialled, Secured, Streams, Protocols, Bytes, Cut, Most int64
}

// Overload sends count unknown peers, each with an identity and a loopback address of
// its own, to an address over TCP or QUIC with /p2p/, where they behave badly
// until the time is over: idle, silent, churn, streams, wants, giant or bomb.
func (b *Boxo) Overload(addr, kind string, count int, lasts time.Duration) (Overload, error) {
	body, err := json.Marshal(map[string]any{
		"addr": addr, "kind": kind, "count": count, "millis": lasts.Milliseconds(), "networks": overloadNetworks,
	})
	if err != nil {
		return Overload{}, err
	}
	var s Overload
	err = b.post("/overload", body, &s)
	return s, err
}

// overloadNetworks are the /16 networks that unknown peers come from.
const overloadNetworks = 8

func (b *Boxo) order(path string, body []byte, out any) {
	b.tb.Helper()
	if err := b.post(path, body, out); err != nil {
		b.tb.Fatal(err)
	}
}

func (b *Boxo) post(path string, body []byte, out any) error {
	resp, err := b.http.Post(b.control+path, "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("boxo peer %s: %w", path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("boxo peer %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("boxo peer %s: %s", path, bytes.TrimSpace(data))
	}
	return json.Unmarshal(data, out)
}

func firstLine(s string) string {
	for i, r := range s {
		if r == '\n' {
			return s[:i]
		}
	}
	return s
}
