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

// foreignTimeout is the longest time of one request to a foreign peer, including fetches.
const foreignTimeout = 3 * time.Minute

// readyLineWithin is the longest time in which a foreign peer must start and print its first line.
const readyLineWithin = 2 * time.Minute

// Offered describes a file or DAG that a foreign peer offers or has fetched.
type Offered struct {
	CID    string `json:"cid"`
	Size   int    `json:"size"`   // size of the file in bytes
	SHA256 string `json:"sha256"` // SHA-256 of the file's bytes, in hex
	Blocks int    `json:"blocks"` // number of blocks of the DAG; 0 if not known
	Bytes  int    `json:"bytes"`  // size of those blocks in bytes; 0 if not known
}

// fileOf returns the description of a file with this CID and content. Blocks and Bytes stay 0.
func fileOf(cid string, data []byte) Offered {
	sum := sha256.Sum256(data)
	return Offered{CID: cid, Size: len(data), SHA256: hex.EncodeToString(sum[:])}
}

// Matches reports whether data is the content of the file, by its SHA-256.
func (o Offered) Matches(data []byte) bool { return fileOf(o.CID, data).SHA256 == o.SHA256 }

// Foreign is a running IPFS peer that is not Holdfast: Boxo, Helia or Kubo.
type Foreign interface {
	// Origins returns the multiaddrs of the peer, with /p2p/.
	Origins() []string
	// AddRandom adds count random files of size bytes.
	AddRandom(count, size int) []Offered
	// Fetch fetches a DAG from the peers at the multiaddrs in from.
	Fetch(cid string, from []string) (Offered, error)
	// Close ends the process of the peer.
	Close()
}

// Boxo is a running foreign peer of the program test/foreign, which uses the IPFS library boxo.
type Boxo struct {
	Addrs []string

	tb      testing.TB
	control string
	http    *http.Client
	proc    *process
}

// StartBoxo starts a peer with flags of test/foreign. It is ended at the end of the test.
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

// As returns the same peer for a subtest, so that errors fail the subtest.
func (b *Boxo) As(tb testing.TB) *Boxo {
	other := *b
	other.tb = tb
	return &other
}

// startPiped starts cmd in a network namespace; nil means that of the test. It returns the standard
// output as a stream, the end of the standard error, and the process. The process is ended at the
// end of the test.
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

// readLine reads one line of JSON from the output of a process that has just started, and decodes
// it into the variable that into points to. It fails the test if there is no such line in time.
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

// Origins returns the multiaddrs of the peer, with /p2p/.
func (b *Boxo) Origins() []string { return b.Addrs }

// Pid returns the process id.
func (b *Boxo) Pid() int { return b.proc.cmd.Process.Pid }

// Close ends the process.
func (b *Boxo) Close() { b.proc.end(b.tb) }

// AddRandom adds count random files of size bytes, cut into chunks of 256 KiB.
func (b *Boxo) AddRandom(count, size int) []Offered {
	b.tb.Helper()
	return b.AddRandomChunked(count, size, 256<<10)
}

// AddRandomChunked does the same as AddRandom with chunks of chunk bytes.
func (b *Boxo) AddRandomChunked(count, size, chunk int) []Offered {
	b.tb.Helper()
	var files []Offered
	b.order("/add?count="+strconv.Itoa(count)+"&size="+strconv.Itoa(size)+"&chunk="+strconv.Itoa(chunk), nil, &files)
	return files
}

// AddBytes adds a file with this content.
func (b *Boxo) AddBytes(data []byte) Offered {
	b.tb.Helper()
	var files []Offered
	b.order("/add", data, &files)
	return files[0]
}

// AddFolder adds a folder whose only entry, "file", is a file with the content data.
func (b *Boxo) AddFolder(data []byte) Offered {
	b.tb.Helper()
	var f Offered
	b.order("/folder", data, &f)
	return f
}

// AddDAG adds a random DAG whose nodes have the codec dag-cbor, dag-json or dag-pb. It has depth
// levels of nodes with width children each, above random leaves.
func (b *Boxo) AddDAG(codec string, width, depth int) Offered {
	b.tb.Helper()
	var f Offered
	b.order(fmt.Sprintf("/dag?codec=%s&width=%d&depth=%d", codec, width, depth), nil, &f)
	return f
}

// Fetch connects to the peers at the multiaddrs in from and fetches the DAG by bitswap.
func (b *Boxo) Fetch(cid string, from []string) (Offered, error) {
	body, err := json.Marshal(map[string]any{"cid": cid, "from": from})
	if err != nil {
		return Offered{}, err
	}
	var f Offered
	err = b.post("/fetch", body, &f)
	return f, err
}

// Overload has the counts of an attack by unknown peers: connections, handshakes, opened streams,
// streams with a negotiated protocol, written bytes, connections that the node closed, and the
// largest number of connections at the same time.
type Overload struct {
	Dialled, Secured, Streams, Protocols, Bytes, Cut, Most int64
}

// Overload starts count peers, each with its own identity and loopback address, which connect to
// addr (TCP or QUIC, with /p2p/) and behave badly for the time lasts. kind is how they behave:
// idle, silent, churn, streams, wants, giant or bomb.
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

// overloadNetworks is the number of /16 networks from which the peers of an Overload come.
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
