package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func (m *Memory) inUse() (bytes int64, holders int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used, len(m.by)
}

// Memory is refused beyond the bound of one holder or of all, and all of it is free after the releases.
func TestMemoryIsBoundedForEachAndForAll(t *testing.T) {
	m := NewMemory(100, 40)
	a, b, c := m.Of("a"), m.Of("b"), m.Of("c")
	for i, tc := range []struct {
		held *Held
		n    int64
		ok   bool
	}{
		{a, 30, true}, {a, 11, false}, {m.Of("a"), 11, false}, {a, 10, true}, {b, 40, true}, {c, 21, false}, {c, 20, true}, {a, 1, false}, {c, 0, true},
	} {
		if err := tc.held.Grow(tc.n); (err == nil) != tc.ok || err != nil && !errors.Is(err, state.ErrLimited) {
			t.Errorf("%d: %v", i, err)
		}
	}
	a.Release()
	a.Release()
	if err := c.Grow(20); err != nil {
		t.Error(err)
	}
	b.Release()
	c.Release()
	if used, holders := m.inUse(); used != 0 || holders != 0 {
		t.Errorf("%d bytes of %d are left", used, holders)
	}
	var none *Held
	if err := none.Grow(1 << 60); err != nil {
		t.Error(err)
	}
	none.Release()
}

// ReadAll returns the whole body, whatever its length and however it is announced, holds memory in proportion to
// what came, and fails above the bound.
func TestReadAllTakesWhatComes(t *testing.T) {
	for _, n := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 100_000, 1 << 20} {
		text := strings.Repeat("0123456789abcdef", n/16+1)[:n]
		for _, size := range []int64{-1, int64(n), int64(n) / 2, int64(n) + 1, 1 << 40} {
			for name, r := range map[string]io.Reader{"at once": strings.NewReader(text), "in halves": iotest.HalfReader(strings.NewReader(text)), "with its end": iotest.DataErrReader(strings.NewReader(text))} {
				m := NewMemory(8<<20, 8<<20)
				held := m.Of("who")
				body, err := ReadAll(r, size, held)
				if err != nil || string(body) != text {
					t.Fatalf("%d bytes, announced %d, %s: %d bytes, %v", n, size, name, len(body), err)
				}
				used, _ := m.inUse()
				if used < int64(cap(body)) || used > 2*int64(n)+firstRead+bytes.MinRead {
					t.Errorf("%d bytes, announced %d, %s: %d of memory for %d", n, size, name, used, cap(body))
				}
			}
		}
	}
	held := NewMemory(50_000, 50_000).Of("who")
	if _, err := ReadAll(strings.NewReader(strings.Repeat("x", 60_000)), 60_000, held); !errors.Is(err, state.ErrLimited) {
		t.Errorf("more than there is: %v", err)
	}
}

// A body takes memory for the bytes that have come, not for its announced length.
func TestAnAnnouncedBodyTakesNoMemory(t *testing.T) {
	m := NewMemory(1<<30, 1<<30)
	in, out := io.Pipe()
	r := httptest.NewRequest(http.MethodPost, "/", in)
	r.ContentLength = MaxJSONBody
	done := make(chan error, 1)
	go func() {
		_, err := Body(httptest.NewRecorder(), r, MaxJSONBody, m.Of("who"))
		done <- err
	}()
	if _, err := out.Write([]byte("{")); err != nil { // it is being read
		t.Fatal(err)
	}
	if used, _ := m.inUse(); used == 0 || used > firstRead {
		t.Errorf("%d bytes for one", used)
	}
	if err := errors.Join(out.Close(), <-done); err != nil {
		t.Error(err)
	}
}

// A JSON object may have MaxJSONMembers members, and one more gets 400.
func TestAnObjectHasSoManyMembers(t *testing.T) {
	object := func(n int) []byte {
		var b bytes.Buffer
		for i := range n {
			fmt.Fprintf(&b, `,"%d":0`, i)
		}
		return append(append([]byte{'{'}, b.Bytes()[1:]...), '}')
	}
	if fields, err := Object("it", object(MaxJSONMembers)); err != nil || len(fields) != MaxJSONMembers {
		t.Errorf("the most: %d, %v", len(fields), err)
	}
	if _, err := Object("it", object(MaxJSONMembers+1)); statusOf(err) != http.StatusBadRequest {
		t.Errorf("one more: %v", err)
	}
}

// A server serves MaxRequests requests at once and refuses one more, until one has ended.
func TestRequestsAtOnceAreBounded(t *testing.T) {
	enough, begun := make(chan struct{}), make(chan struct{})
	h, _ := wrapped(func(http.ResponseWriter, *http.Request) error {
		begun <- struct{}{}
		<-enough
		return nil
	})
	codes := make(chan int)
	for range MaxRequests {
		go func() { codes <- serve(h, "GET", "/x", nil).Code }()
	}
	for range MaxRequests {
		<-begun
	}
	if w := serve(h, "GET", "/x", nil); w.Code == http.StatusOK {
		t.Errorf("one more: %d", w.Code)
	}
	close(enough)
	for range MaxRequests {
		if code := <-codes; code != http.StatusOK {
			t.Fatalf("%d", code)
		}
	}
	go func() { <-begun }()
	if w := serve(h, "GET", "/x", nil); w.Code != http.StatusOK {
		t.Errorf("later: %d", w.Code)
	}
}
