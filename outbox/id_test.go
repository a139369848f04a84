package outbox

import (
	"regexp"
	"sync"
	"testing"
	"time"
)

func TestNewID_IsUUIDv7OfNow(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for range 1000 {
		if id := NewID(); !form.MatchString(id) {
			t.Fatalf("not a UUIDv7: %s", id)
		}
	}
	id := NewID()
	var ms int64
	for _, c := range id[:8] + id[9:13] {
		digit := int64(c - '0')
		if c >= 'a' {
			digit = int64(c-'a') + 10
		}
		ms = ms<<4 | digit
	}
	if off := time.Since(time.UnixMilli(ms)).Abs(); off > time.Minute {
		t.Fatalf("time in %s is %s off", id, off)
	}
}

func TestNewID_AscendsWithinAProcess(t *testing.T) {
	t.Parallel()
	last := ""
	for range 100_000 { // far more than the counter holds for one millisecond
		id := NewID()
		if id <= last {
			t.Fatalf("%s came after %s", id, last)
		}
		last = id
	}
}

func TestNewID_IsUniqueAmongGoroutines(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 10_000 {
				if _, twice := seen.LoadOrStore(NewID(), true); twice {
					t.Error("an id came twice")
				}
			}
		})
	}
	wait.Wait()
}

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewID()
	}
}
