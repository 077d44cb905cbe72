package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// Limits of the data that the demo reads.
const (
	maxDemoAnswer = 1 << 20  // largest HTTP response body, in bytes
	maxReadyLine  = 64 << 10 // longest JSON line of the foreign peer, in bytes
	maxDemoObject = 64 << 20 // largest object, in bytes
)

// demoContent describes the file that the demo pins. The foreign peer returns this JSON for a
// file that it has added.
type demoContent struct {
	CID    string `json:"cid"`
	Size   int    `json:"size"`   // size in bytes
	SHA256 string `json:"sha256"` // hash of the bytes in hexadecimal
}

// demoPeer is the process of the foreign IPFS peer. Its fields are those of the JSON line that
// the process prints when it is ready.
type demoPeer struct {
	*child  `json:"-"`
	Addrs   []string `json:"addrs"`   // multiaddrs that end in /p2p/ID
	Control string   `json:"control"` // URL that accepts commands
}

// tour runs the steps of the demo in order.
func (d *demo) tour(ctx context.Context) error {
	for _, step := range []struct {
		title string
		do    func(ctx context.Context) ([]string, error)
	}{
		{"node1 starts: a cluster of one", func(ctx context.Context) ([]string, error) { return nil, d.addNode(ctx, "") }},
		{"node2 joins with a ticket of node1", d.join},
		{"node3 joins with another", d.join},
		{"all three see each other", d.meet},
		{d.offerTitle(), d.offer},
		{"an account and an API key, made on node1", d.account},
		{"POST /pins at node2, with the key", d.post},
		{"the cluster fetches it: pinned, asked at node3", d.pinned},
		{"all three keep a copy", d.copies},
		{d.leaveTitle(), d.leave},
		{"the file becomes an object: PUT " + demoObject + " at node1", d.putObject},
		{"GET " + demoObject + " at node2 and node3", func(ctx context.Context) ([]string, error) { return d.getObject(ctx, d.nodes[1:]) }},
	} {
		if step.title == "" {
			continue
		}
		if err := d.step(ctx, step.title, step.do); err != nil {
			return err
		}
	}
	return d.failure(ctx)
}

func (d *demo) join(ctx context.Context) ([]string, error) {
	ticket, err := d.nodes[0].op.CreateTicket(ctx, time.Hour)
	if err != nil {
		return nil, err
	}
	return nil, d.addNode(ctx, ticket)
}

func (d *demo) meet(ctx context.Context) ([]string, error) {
	err := d.everyoneAlive(ctx, demoNodes)
	var where []string
	for _, n := range d.nodes {
		where = append(where, fmt.Sprintf("%s  pinning API http://%s  %s", n.name, n.pinning, d.palette.dim(n.id)))
	}
	return where, err
}

// foreignProgram returns the path in the variable HOLDFAST_DEMO_PEER, or "" if it is not set.
// Without the program, the demo runs without a foreign IPFS peer.
func (d *demo) foreignProgram() string {
	for _, entry := range d.app.environ {
		if value, ok := strings.CutPrefix(entry, demoPeerVariable+"="); ok {
			return value
		}
	}
	return ""
}

func (d *demo) offerTitle() string {
	if d.foreignProgram() == "" {
		return "a file is imported on node1 (no foreign peer was given)"
	}
	return "an IPFS peer that is not Holdfast offers a file of " + humanBytes(demoFile)
}

// offer provides the file that the demo pins and stores its description in d.file. The file comes
// from the foreign IPFS peer. Without a foreign peer, offer imports random bytes on the first
// node.
func (d *demo) offer(ctx context.Context) ([]string, error) {
	program := d.foreignProgram()
	if program == "" {
		data := make([]byte, demoFile)
		_, _ = rand.Read(data) // never fails, see crypto/rand
		added, err := d.nodes[0].op.AddContent(ctx, bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		d.file = demoContent{CID: added.CID, Size: len(data), SHA256: hex.EncodeToString(sum[:])}
		return []string{d.file.CID}, nil
	}
	if err := d.startPeer(ctx, program); err != nil {
		return nil, err
	}
	var files []demoContent
	code, err := d.call(ctx, http.MethodPost, fmt.Sprintf("%s/add?size=%d", d.peer.Control, demoFile), "", nil, &files)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK || len(files) != 1 {
		return nil, fmt.Errorf("the foreign peer answered %d with %d files", code, len(files))
	}
	d.file = files[0]
	return []string{d.file.CID, d.palette.dim("at " + d.peer.Addrs[0])}, nil
}

// startPeer starts the foreign peer and waits for the JSON line that the peer prints when it is
// ready.
func (d *demo) startPeer(ctx context.Context, program string) error {
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the foreign peer: %w", err)
	}
	defer func() { _ = out.Close() }() // it prints no more than a line
	cmd := exec.Command(program)
	cmd.Env = withoutSettings(d.app.environ)
	cmd.Stdout = in
	c, err := startChild("the foreign peer", filepath.Join(d.dir, "foreign.log"), cmd)
	_ = in.Close() // the process has its own
	if err != nil {
		return err
	}
	d.peer = &demoPeer{child: c}
	// The process closes the pipe when it ends, so the read below ends too.
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(out, maxReadyLine)).ReadBytes('\n')
	if err != nil {
		return errors.Join(fmt.Errorf("the foreign peer did not start: %w", err), c.kill(), c.end(ctx))
	}
	if err := json.Unmarshal(line, d.peer); err != nil || len(d.peer.Addrs) == 0 {
		return fmt.Errorf("the foreign peer printed %q: %w", line, err)
	}
	return nil
}

func (d *demo) account(ctx context.Context) ([]string, error) {
	if _, err := d.nodes[0].op.CreateUser(ctx, demoAccount, ""); err != nil {
		return nil, err
	}
	key, err := d.nodes[0].op.CreateKey(ctx, client.NewKey{User: demoAccount, Name: "demo"})
	d.token = key.Token
	return nil, err
}

// demoPin has the fields of a PinStatus of the Pinning Service API that the demo reads.
type demoPin struct {
	RequestID string            `json:"requestid"`
	Status    string            `json:"status"`
	Info      map[string]string `json:"info"`
}

// post pins the file with POST /pins over HTTP, as any client of the Pinning Service API does.
func (d *demo) post(ctx context.Context) ([]string, error) {
	pin := map[string]any{"cid": d.file.CID, "name": "demo"}
	if d.peer != nil {
		pin["origins"] = d.peer.Addrs
	}
	body, err := json.Marshal(pin)
	if err != nil {
		return nil, fmt.Errorf("encode pin: %w", err)
	}
	var got demoPin
	code, err := d.call(ctx, http.MethodPost, "http://"+d.nodes[1].pinning+"/pins", d.token, body, &got)
	if err != nil {
		return nil, err
	}
	if code != http.StatusAccepted {
		return nil, fmt.Errorf("the answer is %d", code)
	}
	d.pin = got.RequestID
	return []string{fmt.Sprintf("%d %s  %s", code, d.palette.state(got.Status), d.palette.dim("request "+got.RequestID))}, nil
}

// pinned waits until the file is pinned, and then requests the pin from every node.
func (d *demo) pinned(ctx context.Context) ([]string, error) {
	err := until(ctx, demoPoll, d.nodes[2].child, func(ctx context.Context) (bool, error) {
		pin, err := d.ask(ctx, d.nodes[2])
		return pin.Status == "pinned" || pin.Status == "failed", err
	})
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, n := range d.nodes {
		pin, err := d.ask(ctx, n)
		if err != nil {
			return lines, err
		}
		lines = append(lines, fmt.Sprintf("GET /pins/{id} at %s: %s", n.name, d.palette.state(pin.Status)))
		if pin.Status != "pinned" {
			return lines, fmt.Errorf("at %s the pin is %s: %s", n.name, pin.Status, pin.Info["status_details"])
		}
	}
	return lines, nil
}

// ask requests the pin from the node n over HTTP.
func (d *demo) ask(ctx context.Context, n *demoNode) (pin demoPin, err error) {
	code, err := d.get(ctx, "http://"+n.pinning+"/pins/"+d.pin, d.token, &pin)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s answers %d", n.name, code)
	}
	return pin, err
}

// copies waits until every node stores a copy of the pinned file.
func (d *demo) copies(ctx context.Context) ([]string, error) {
	err := until(ctx, demoPoll, nil, func(ctx context.Context) (bool, error) {
		s, err := d.nodes[0].op.Status(ctx)
		holders := 0
		for _, p := range s.Peers {
			if p.Pins > 0 {
				holders++
			}
		}
		return holders == demoNodes, err
	})
	return nil, err
}

func (d *demo) leaveTitle() string {
	if d.foreignProgram() == "" {
		return ""
	}
	return "the IPFS peer leaves: only the cluster has the file now"
}

func (d *demo) leave(context.Context) ([]string, error) { return nil, d.peer.stop() }

// failure shows that the cluster survives the loss of its leader. It kills the leader, reads the
// file and the object through the other nodes, and starts the killed node again.
func (d *demo) failure(ctx context.Context) error {
	victim := d.nodes[0]
	if s, err := victim.op.Status(ctx); err == nil {
		for _, n := range d.nodes {
			if n.id == s.Leader {
				victim = n
			}
		}
	}
	var left []*demoNode
	for _, n := range d.nodes {
		if n != victim {
			left = append(left, n)
		}
	}
	if err := d.step(ctx, victim.name+", the leader, is killed (kill -9)", func(context.Context) ([]string, error) {
		return nil, victim.kill()
	}); err != nil {
		return err
	}
	for _, n := range left {
		err := d.step(ctx, "the file is read from "+n.name+", each block checked", func(ctx context.Context) ([]string, error) {
			return nil, d.read(ctx, n)
		})
		if err != nil {
			return err
		}
	}
	if err := d.step(ctx, left[0].name+" and "+left[1].name+" choose a leader, the API answers", func(ctx context.Context) ([]string, error) {
		return d.answers(ctx, left)
	}); err != nil {
		return err
	}
	if err := d.step(ctx, "the object is there too", func(ctx context.Context) ([]string, error) { return d.getObject(ctx, left) }); err != nil {
		return err
	}
	return d.step(ctx, victim.name+" comes back and catches up", func(ctx context.Context) ([]string, error) {
		if err := d.start(victim); err != nil {
			return nil, err
		}
		if err := d.ready(ctx, victim); err != nil {
			return nil, err
		}
		if err := d.everyoneAlive(ctx, demoNodes); err != nil {
			return nil, err
		}
		return d.answers(ctx, []*demoNode{victim})
	})
}

// answers waits until each of nodes returns the pin. It returns one line for each of them, with
// the status of the pin.
func (d *demo) answers(ctx context.Context, nodes []*demoNode) (lines []string, err error) {
	for _, n := range nodes {
		var pin demoPin
		err := until(ctx, demoPoll, n.child, func(ctx context.Context) (bool, error) {
			var err error
			pin, err = d.ask(ctx, n)
			return err == nil, err
		})
		if err != nil {
			return lines, err
		}
		lines = append(lines, fmt.Sprintf("GET /pins/{id} at %s: %s", n.name, d.palette.state(pin.Status)))
	}
	return lines, nil
}

// Names of the bucket and the object that the demo stores.
const (
	demoBucket = "/demo"
	demoObject = demoBucket + "/folder/file"
)

// putObject stores the content of the file as an S3 object, with PUT requests as any S3 client
// sends them.
func (d *demo) putObject(ctx context.Context) ([]string, error) {
	content, _, err := d.nodes[2].op.OpenContent(ctx, "", d.file.CID)
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }() // read to its end
	data, err := io.ReadAll(io.LimitReader(content, maxDemoObject))
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	for _, put := range []struct {
		path string
		body []byte
	}{{demoBucket, nil}, {demoObject, data}} {
		code, err := d.call(ctx, http.MethodPut, "http://"+d.nodes[0].s3+put.path, d.token, put.body, nil)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("PUT %s: the answer is %d", put.path, code)
		}
		if err != nil {
			return nil, err
		}
	}
	return []string{fmt.Sprintf("%d bytes, durable on two nodes before the answer", len(data))}, nil
}

// getObject reads the S3 object through each of nodes until its SHA-256 hash is that of the file.
// It returns one line for each node.
func (d *demo) getObject(ctx context.Context, nodes []*demoNode) (lines []string, err error) {
	for _, n := range nodes {
		err := until(ctx, demoPoll, n.child, func(ctx context.Context) (bool, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.s3+demoObject, nil)
			if err != nil {
				return false, err
			}
			req.Header.Set("Authorization", "Bearer "+d.token)
			resp, err := d.http.Do(req)
			if err != nil {
				return false, err
			}
			defer func() { _ = resp.Body.Close() }() // read as far as it matters
			sum := sha256.New()
			size, err := io.Copy(sum, io.LimitReader(resp.Body, maxDemoObject))
			if err != nil || resp.StatusCode != http.StatusOK {
				return false, fmt.Errorf("%s answers %d: %w", n.name, resp.StatusCode, err)
			}
			if hex.EncodeToString(sum.Sum(nil)) != d.file.SHA256 {
				return false, fmt.Errorf("%s answers %d other bytes", n.name, size)
			}
			return true, nil
		})
		if err != nil {
			return lines, err
		}
		lines = append(lines, "the same bytes at "+n.name)
	}
	return lines, nil
}

// read reads the file through the node n and compares its size and hash with those in d.file.
func (d *demo) read(ctx context.Context, n *demoNode) error {
	content, _, err := n.op.OpenContent(ctx, "", d.file.CID)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // read to its end
	sum := sha256.New()
	size, err := io.Copy(sum, content)
	if err != nil {
		return err
	}
	if size != int64(d.file.Size) || hex.EncodeToString(sum.Sum(nil)) != d.file.SHA256 {
		return fmt.Errorf("%d bytes that are not the file", size)
	}
	return nil
}

func (d *demo) get(ctx context.Context, url, token string, into any) (int, error) {
	return d.call(ctx, http.MethodGet, url, token, nil, into)
}

// call sends one HTTP request, with token as the bearer token unless token is empty, and returns
// the status code. If into is not nil, call decodes the JSON of a 2xx response into it, and
// returns every other response as an error that contains the response body.
func (d *demo) call(ctx context.Context, method, url, token string, body []byte, into any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // read as far as it matters
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDemoAnswer))
	switch {
	case err != nil:
		return resp.StatusCode, fmt.Errorf("%s %s: %w", method, url, err)
	case into == nil:
		return resp.StatusCode, nil
	case resp.StatusCode/100 != 2:
		return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, bytes.TrimSpace(text))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: %w", method, url, err)
	}
	return resp.StatusCode, nil
}
