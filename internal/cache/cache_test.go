package cache

import (
	"fmt"
	"slices"
	"testing"
)

// A full cache drops the least recently used entry; Get and Put are uses, and Peek is none.
func TestWhatIsUsedStays(t *testing.T) {
	c := New[string, int](3)
	for i, key := range []string{"a", "b", "c"} {
		c.Put(key, i)
	}
	c.Get("a")
	c.Put("b", 10)
	c.Peek("c")
	c.Put("d", 3) // c goes
	c.Remove("a")
	c.Remove("none")
	var got []string
	for _, key := range []string{"a", "b", "c", "d"} {
		if value, ok := c.Peek(key); ok {
			got = append(got, fmt.Sprint(key, value))
		}
	}
	if want := []string{"b10", "d3"}; !slices.Equal(got, want) || c.Len() != 2 || c.Weight() != 2 {
		t.Errorf("got %v, %d entries of weight %d, want %v", got, c.Len(), c.Weight(), want)
	}
}

// All entries together weigh no more than the bound, and gone is called once with each entry that leaves.
func TestWeightIsBounded(t *testing.T) {
	var gone []string
	c := Weighted(100, func(key string, bytes int) int { return len(key) + bytes }, func(key string, _ int) { gone = append(gone, key) })
	c.Put("a", 39)
	c.Put("b", 39)
	c.Put("a", 59) // fits with b
	if c.Weight() != 100 || len(gone) != 0 {
		t.Fatalf("weight %d, gone %v", c.Weight(), gone)
	}
	c.Put("c", 9) // b goes
	c.Put("large", 100)
	c.Put("d", 4)
	c.Remove("d")
	c.Put("e", 4)
	c.Clear()
	if want := []string{"b", "a", "c", "large", "d", "e"}; !slices.Equal(gone, want) {
		t.Errorf("gone %v, want %v", gone, want)
	}
	if c.Weight() != 0 || c.Len() != 0 {
		t.Errorf("%d entries of weight %d after Clear", c.Len(), c.Weight())
	}
}

// Many goroutines may use a Locked cache, which returns the values that were put and keeps its bound. The race
// detector finds an access without the lock.
func TestLockedIsForManyGoroutines(t *testing.T) {
	c := NewLocked[int, int](10)
	done := make(chan struct{})
	for g := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range 1000 {
				c.Put(i, i)
				if got, ok := c.Get(i); ok && got != i {
					t.Errorf("goroutine %d got %d for %d", g, got, i)
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
	if c.Len() != 10 {
		t.Errorf("%d entries", c.Len())
	}
}
