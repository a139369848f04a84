package relay

import "sync"

// queue holds what was read for one flow and is not handed to its sink yet. What gathers while a Write is
// under way goes into the next one together. The budget bounds it.
type queue struct {
	mu    sync.Mutex
	evs   []*Event
	ended bool
	ready chan struct{} // buffered 1
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

func (q *queue) push(evs []*Event) {
	if len(evs) == 0 {
		return
	}
	q.mu.Lock()
	q.evs = append(q.evs, evs...)
	q.mu.Unlock()
	q.signal()
}

// end makes take say that nothing will follow, once it is empty.
func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns the first events up to the limits, at least one if there is any, and whether more may come.
func (q *queue) take(events int, bytes int64) (evs []*Event, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.evs) && n < events {
		if bytes -= q.evs[n].Size(); bytes < 0 && n > 0 {
			break
		}
		n++
	}
	evs, q.evs = q.evs[:n:n], q.evs[n:]
	if len(q.evs) == 0 {
		q.evs = nil // lets go of what was taken
	}
	return evs, n > 0 || !q.ended
}
