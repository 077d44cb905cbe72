//go:build conformance

package conformance

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

var historySeed = flag.Uint64("history-seed", 11, "of the clients of TestHistoriesOfObjects")

// Sizes of the histories of objects.
const (
	historyClients = 9
	historyOps     = 150 // of each client
	historyKeys    = 3
	historyPatient = time.Minute // for the check
)

// What is done to a key, and what comes of it. A value is the text that a PUT
// wrote, "" is no object.
type (
	objectOp struct {
		key    int
		kind   string // put, fresh (a PUT that must be the first), get, delete, listed
		value  string
		client int
	}
	objectResult struct {
		value string // of get; the ETag of what it read, of listed
		done  bool   // of fresh: it was the first
	}
)

// objectModel is one key: a register that can be empty.
var objectModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make([][]porcupine.Operation, historyKeys)
		for _, op := range history {
			k := op.Input.(objectOp).key
			byKey[k] = append(byKey[k], op)
		}
		return byKey
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		now, op, got := state.(string), input.(objectOp), output.(objectResult)
		switch op.kind {
		case "put":
			return true, op.value
		case "fresh":
			if got.done {
				return now == "", op.value
			}
			return now != "", now
		case "maybe": // fresh, and nobody was told
			if now == "" {
				return true, op.value
			}
			return true, now
		case "delete":
			return true, ""
		case "get":
			return got.value == now, now
		case "listed":
			want := ""
			if now != "" {
				want = harness.ETag([]byte(now))
			}
			return got.value == want, now
		}
		return false, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// TestHistoriesOfObjects promises that one order explains what clients at three nodes saw of a few keys, while a node
// that does not lead is killed and comes back. They put, read, list and delete the keys.
func TestHistoriesOfObjects(t *testing.T) {
	longForm(t)
	t.Parallel()
	c := harness.Start(t, harness.Options{Env: []string{"HOLDFAST_API_ACCOUNT_RATE=0", "HOLDFAST_API_ADDRESS_RATE=0"}})
	o := newObjects(t, c, "history@example.org")
	bucket := "/history" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	h := &history{objects: o, bucket: bucket, began: time.Now()}
	var clients errgroup.Group
	for i := range historyClients {
		clients.Go(func() error { return h.client(t.Context(), i) })
	}
	harness.Eventually(t, time.Minute, "the clients are at work", func() (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.ops) > historyClients*historyOps/4, nil
	})
	victim := c.Followers()[0]
	victim.Kill()
	harness.Pause(t.Context(), time.Second)
	victim.Restart()
	c.Settle()
	if err := clients.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations", len(h.ops))
	if result := porcupine.CheckOperationsTimeout(objectModel, h.ops, historyPatient); result != porcupine.Ok {
		_, info := porcupine.CheckOperationsVerbose(objectModel, h.ops, historyPatient)
		t.Errorf("the history is %s: %+v", result, info)
	}
}

// history is what clients did and saw.
type history struct {
	*objects
	bucket string
	began  time.Time

	// mu guards ops. It is never held during a request.
	mu  sync.Mutex
	ops []porcupine.Operation
}

// note adds an operation. One without an answer may happen at any time later.
func (h *history) note(op objectOp, call time.Time, got objectResult, known bool) {
	end := time.Since(h.began)
	if !known {
		end = time.Hour
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: op.client, Input: op, Call: int64(call.Sub(h.began)), Output: got, Return: int64(end)})
}

// client does one thing after the other. An operation whose end is not known takes
// its client's name with it, since it may still happen.
func (h *history) client(ctx context.Context, id int) error {
	r := rand.New(rand.NewPCG(uint64(id), *historySeed))
	name := id
	for i := range historyOps {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		op := objectOp{key: r.IntN(historyKeys), value: fmt.Sprintf("%d.%d", id, i), client: name}
		op.kind = []string{"put", "put", "fresh", "delete", "get", "get", "get", "listed"}[r.IntN(8)]
		known, err := h.do(h.cluster.Nodes[r.IntN(len(h.cluster.Nodes))], op)
		if err != nil {
			return err
		}
		if !known {
			name += historyClients
			harness.Pause(ctx, fireRetry)
		}
	}
	return nil
}

// do sends one operation and notes it; false: nobody knows what became of it.
func (h *history) do(n *harness.Node, op objectOp) (known bool, err error) {
	path := fmt.Sprintf("%s/k%d", h.bucket, op.key)
	method, body, headers := http.MethodGet, []byte(nil), []string(nil)
	switch op.kind {
	case "put":
		method, body = http.MethodPut, []byte(op.value)
	case "fresh":
		method, body, headers = http.MethodPut, []byte(op.value), []string{"If-None-Match", "*"}
	case "delete":
		method = http.MethodDelete
	case "listed":
		path = h.bucket + "?list-type=2"
	}
	call := time.Now()
	reply, err := h.tryOn(n, method, path, body, headers...)
	reads := op.kind == "get" || op.kind == "listed"
	if err != nil || reply.Status == http.StatusServiceUnavailable {
		switch {
		case reads: // nobody saw anything
		case op.kind == "fresh":
			h.note(objectOp{op.key, "maybe", op.value, op.client}, call, objectResult{}, false)
		default:
			h.note(op, call, objectResult{}, false)
		}
		return false, nil
	}
	switch {
	case op.kind == "listed" && reply.Status == http.StatusOK:
		page := into[listResult](h.t, reply)
		for k := range historyKeys { // what a list shows of each key is a read of it
			seen := ""
			for _, entry := range page.Contents {
				if entry.Key == fmt.Sprintf("k%d", k) {
					seen = entry.ETag
				}
			}
			h.note(objectOp{k, op.kind, "", op.client}, call, objectResult{value: seen}, true)
		}
	case op.kind == "get" && reply.Status == http.StatusNotFound && strings.Contains(string(reply.Body), "NoSuchKey"):
		h.note(op, call, objectResult{}, true)
	case op.kind == "get" && reply.Status == http.StatusOK:
		h.note(op, call, objectResult{value: string(reply.Body)}, true)
	case op.kind == "put" && reply.Status == http.StatusOK, op.kind == "delete" && reply.Status == http.StatusNoContent:
		h.note(op, call, objectResult{}, true)
	case op.kind == "fresh" && (reply.Status == http.StatusOK || reply.Status == http.StatusPreconditionFailed):
		h.note(op, call, objectResult{done: reply.Status == http.StatusOK}, true)
	default:
		return false, fmt.Errorf("%s of k%d through %s: %d %s", op.kind, op.key, n.Name, reply.Status, reply.Body)
	}
	return true, nil
}

// TestUploadsThatEndTwice promises that an upload that several nodes complete or abort at once has one end, of which
// all clients are told the same.
func TestUploadsThatEndTwice(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, harness.Options{})
	u := &uploads{newObjects(t, c, "twice@example.org"), "/twice" + randomName()}
	u.ok(http.StatusOK, http.MethodPut, u.bucket, nil)
	var completed, aborted int
	for i := range 40 {
		key := fmt.Sprintf("k%d", i)
		id := u.begin(key)
		data := harness.RandomBytes(1000)
		list := harness.Completion(1, u.part(key, id, 1, data))
		path := fmt.Sprintf("%s/%s?uploadId=%s", u.bucket, key, id)
		methods := []string{http.MethodPost, http.MethodPost, http.MethodDelete}
		if i%2 == 0 {
			methods[2] = http.MethodPost
		}
		status := make([]int, len(methods))
		var g errgroup.Group
		for k, method := range methods {
			g.Go(func() error {
				body := list
				if method == http.MethodDelete {
					body = nil
				}
				r, err := u.tryOn(c.Nodes[(i+k)%len(c.Nodes)], method, path, body)
				status[k] = r.Status
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		got := u.call(http.MethodGet, u.bucket+"/"+key, nil)
		there := got.Status == http.StatusOK && string(got.Body) == string(data)
		wantPost, wantDelete := http.StatusOK, http.StatusNotFound
		if there {
			completed++
		} else {
			aborted++
			wantPost, wantDelete = http.StatusNotFound, http.StatusNoContent
		}
		for k, method := range methods {
			want := wantPost
			if method == http.MethodDelete {
				want = wantDelete
			}
			if status[k] != want {
				t.Errorf("upload %d, object there %v: %s answered %d, want %d", i, there, method, status[k], want)
			}
		}
	}
	if completed < 20 {
		t.Errorf("%d uploads were completed, %d aborted", completed, aborted)
	}
}
