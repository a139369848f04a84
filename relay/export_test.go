package relay

import "fmt"

// Leftovers says what a relay still holds in memory; "" when that is nothing.
func Leftovers(r *Relay) string {
	r.gate.mu.Lock()
	var keys []string
	for key, k := range r.gate.keys {
		keys = append(keys, fmt.Sprintf("%s: busy %d shut %v reopened %v first %s %+v", key, k.busy, k.shut, k.reopened, k.first, k.doubts))
	}
	busy, shut, reopened, waits := len(r.gate.busy), r.gate.shut, len(r.gate.reopened), len(r.gate.waits)
	r.gate.mu.Unlock()
	events, bytes := r.budget.load()
	late, lateBytes, graves := 0, int64(0), 0
	for _, s := range r.send {
		s.mu.Lock()
		late, lateBytes, graves = late+len(s.late.events), lateBytes+s.late.bytes, graves+len(s.graves)
		s.mu.Unlock()
		s.queue.mu.Lock()
		late += len(s.queue.evs)
		s.queue.mu.Unlock()
	}
	r.settle.mu.Lock()
	queue := len(r.settle.queue)
	r.settle.mu.Unlock()
	if busy+shut+reopened+waits+events+late+graves+queue+len(keys) == 0 && bytes == 0 && lateBytes == 0 {
		return ""
	}
	return fmt.Sprintf("busy %d, shut %d, reopened %d, waits %d, budget %d events %d bytes, late %d of %d bytes, graves %d, queue %d; %v",
		busy, shut, reopened, waits, events, bytes, late, lateBytes, graves, queue, keys)
}
