//go:build synctests

package sim

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/outbox"
)

// trouble is what is wrong with an event.
type trouble int

const (
	none      trouble = iota
	poison            // refused for good by the broker
	weak              // refused a few times
	large             // larger than its topic takes
	badTopic          // of a name that no topic can have
	lateTopic         // which is not there before half of the span is over
	malformed         // headers that are no object
	troubles
)

// marks are what payloads say of their trouble, for the broker.
var marks = [troubles]string{"fine", "poison", "weak", "large", "bad topic", "late topic", "malformed"}

const (
	comesLate = "late"
	deadTopic = "dead"
	maxRecord = 20_000 // of the topics, in bytes
)

// troubleOf is drawn by the event's id.
func (w *world) troubleOf(id string) trouble {
	d := w.draw("trouble", id)
	if w.bad == 0 || !d.sometimes(w.bad) {
		return none
	}
	return trouble(1 + d.IntN(int(troubles)-1))
}

// event is what the service writes under an id.
func (w *world) event(id, key string) outbox.Event {
	d, t := w.draw("event", id), w.troubleOf(id)
	filling := d.IntN(100)
	e := outbox.Event{ID: id, AggregateType: "Order", AggregateID: key, Type: "Changed", Topic: topicName(d.IntN(w.topics))}
	switch {
	case d.IntN(3) == 0:
		e.Headers = map[string]string{"note": "ü " + id}
	case t == malformed:
		e.Headers = map[string]string{"note": "unreadable"}
	}
	switch t {
	case large:
		filling = maxRecord + 100
	case lateTopic:
		e.Topic = comesLate
	}
	e.Payload = fmt.Appendf(nil, `{"id":%q,"is":%q,"n":12345678901234567890.10,"filling":"%s"}`, id, marks[t], strings.Repeat("x", filling))
	if t == none && d.IntN(20) == 0 {
		e.Payload = nil
	}
	return e
}

// spoil changes a row so that the service's own library would not have written it.
var spoil = map[trouble]string{
	badTopic:  "UPDATE outbox_events SET topic = 'no such name!' WHERE event_id = ?",
	malformed: "UPDATE outbox_events SET headers = '[1]' WHERE event_id = ?",
}

// hopeless says that an event cannot reach its topic.
func (w *world) hopeless(id string) bool {
	switch w.troubleOf(id) {
	case poison, large, badTopic, malformed:
		return true
	}
	return false
}

// kfault is a broker's answer, until it is removed.
func kfault(key kmsg.Key, err *kerr.Error) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: -1}
}
