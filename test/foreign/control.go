package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/ipfs/go-cid"
)

// Limits of the requests that the control server accepts.
const (
	maxAddBytes = 1 << 30 // bytes of one added file
	maxAddFiles = 10_000  // number of files that one request can add
	maxBlock    = 2 << 20 // bytes of one chunk
	maxTree     = 1 << 20 // number of leaves of one generated DAG
	maxRequest  = 1 << 16 // bytes of a JSON body
)

// file describes a file that the peer has added or fetched. The control server returns it as JSON.
type file struct {
	CID    string `json:"cid"`
	Size   int    `json:"size"`             // bytes of the file
	SHA256 string `json:"sha256"`           // hex, of the file's bytes
	Blocks int    `json:"blocks,omitempty"` // blocks of the DAG, where known
	Bytes  int    `json:"bytes,omitempty"`  // bytes of those blocks
}

// newControl returns the handler of the control server. Each route has its answer after "->":
//
//	POST /add?size=N[&count=C][&chunk=B]  add C random files of N bytes -> [file]
//	POST /add[?chunk=B] with a body       add the body as a file -> [file]
//	POST /folder with a body              add a folder whose only file, "file", is the body -> file
//	POST /dag?codec=C&width=W&depth=D     add a random DAG -> file with Blocks
//	POST /fetch {"cid", "from": [addrs]}  fetch a DAG from these peers -> file
//	POST /overload with overloadRequest   attack an address with many peers -> overloadResult
//	GET  /file?cid=C                      read a file from the local store -> its bytes
func newControl(p *foreignPeer) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := serve(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnprocessableEntity)
				return
			}
			if raw, ok := answer.([]byte); ok {
				_, _ = w.Write(raw)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer) // the client is gone; nobody is left to tell
		})
	}
	handle("POST /add", p.serveAdd)
	handle("POST /folder", p.serveFolder)
	handle("POST /dag", p.serveDAG)
	handle("POST /fetch", p.serveFetch)
	handle("POST /overload", p.serveOverload)
	handle("GET /file", func(r *http.Request) (any, error) {
		c, err := cid.Decode(r.FormValue("cid"))
		if err != nil {
			return nil, fmt.Errorf("cid: %w", err)
		}
		return p.readFile(r.Context(), c)
	})
	return mux
}

func (p *foreignPeer) serveAdd(r *http.Request) (any, error) {
	size, err := number(r, "size", 0, maxAddBytes)
	if err != nil {
		return nil, err
	}
	count, err := number(r, "count", 1, maxAddFiles)
	if err != nil {
		return nil, err
	}
	chunkSize, err := number(r, "chunk", 256<<10, maxBlock)
	if err != nil {
		return nil, err
	}
	files := []file{}
	for range count {
		var data []byte
		if r.URL.Query().Has("size") {
			data = randomBytes(size)
		} else if data, err = io.ReadAll(io.LimitReader(r.Body, maxAddBytes)); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		c, err := p.AddFile(r.Context(), bytes.NewReader(data), int64(max(chunkSize, 1)))
		if err != nil {
			return nil, err
		}
		files = append(files, describe(c, data))
	}
	return files, nil
}

func (p *foreignPeer) serveFolder(r *http.Request) (any, error) {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxAddBytes))
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	c, err := p.AddFolder(r.Context(), bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return file{CID: c.String()}, nil
}

func (p *foreignPeer) serveDAG(r *http.Request) (any, error) {
	width, err := number(r, "width", 4, 1000)
	if err != nil {
		return nil, err
	}
	depth, err := number(r, "depth", 2, 20)
	if err != nil {
		return nil, err
	}
	leaves := 1
	for range depth {
		if leaves *= max(width, 2); leaves > maxTree {
			return nil, fmt.Errorf("width %d and depth %d give more than %d leaves", width, depth, maxTree)
		}
	}
	c, count, err := p.AddDAG(r.Context(), r.FormValue("codec"), max(width, 2), depth)
	if err != nil {
		return nil, err
	}
	return file{CID: c.String(), Blocks: count}, nil
}

func (p *foreignPeer) serveFetch(r *http.Request) (any, error) {
	var ask struct {
		CID  string   `json:"cid"`
		From []string `json:"from"`
	}
	if err := decodeBody(r, &ask); err != nil {
		return nil, err
	}
	c, err := cid.Decode(ask.CID)
	if err != nil {
		return nil, fmt.Errorf("cid: %w", err)
	}
	got, err := p.Fetch(r.Context(), c, ask.From)
	if err != nil {
		return nil, err
	}
	f := describe(c, got.File)
	f.Blocks, f.Bytes = got.Blocks, got.Bytes
	return f, nil
}

// decodeBody decodes the JSON body of a request into the variable that into points to. It reads at
// most maxRequest bytes.
func decodeBody(r *http.Request, into any) error {
	if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(into); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}

func describe(c cid.Cid, data []byte) file {
	sum := sha256.Sum256(data)
	return file{CID: c.String(), Size: len(data), SHA256: hex.EncodeToString(sum[:])}
}

// number returns the query parameter name as a number. It returns otherwise if the request does not
// have the parameter, and an error if the value is not between 0 and limit.
func number(r *http.Request, name string, otherwise, limit int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > limit {
		return 0, fmt.Errorf("%s=%q: want a number from 0 to %d", name, text, limit)
	}
	return n, nil
}
