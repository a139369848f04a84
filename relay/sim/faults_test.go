//go:build synctests

package sim

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fateOf draws what the network does to a request.
func (w *world) fateOf(process string, key int16) (f fate) {
	n := w.call(process + kmsg.NameForKey(key))
	if w.isOver() {
		return f
	}
	d := w.draw("request", process, key, n)
	if w.latency > 0 {
		f.wait, f.late = d.upTo(w.latency), d.upTo(w.latency)
	}
	for _, h := range w.holes {
		if h.key == key && h.has(w.now()) {
			if h.answer {
				f.answer = h.toll
			} else {
				f.request = h.toll
			}
			return f
		}
	}
	share := w.share
	if slices.Contains(w.aims, key) {
		share = w.aimShare
	}
	if len(w.tolls) == 0 || !d.sometimes(share) {
		return f
	}
	f.request = w.tolls[d.IntN(len(w.tolls))]
	longest := 5 * time.Second
	if key == int16(kmsg.JoinGroup) { // so long that others own the lanes meanwhile
		longest = 2 * w.session
	}
	switch {
	case f.request == straggle:
		f.late = time.Millisecond + d.upTo(10*time.Second)
	case f.request == slow && d.sometimes(0.5):
		f.wait = d.upTo(longest)
	case f.request == slow:
		f.late = d.upTo(longest)
	case f.request != twice && d.sometimes(0.5):
		f.request, f.answer = passes, f.request
	}
	return f
}

// plant installs what brokers will say, besides what they say by themselves.
func (w *world) plant() {
	w.cluster.ControlKey(int16(kmsg.InitProducerID), w.initProducer)
	w.cluster.ControlKey(int16(kmsg.SyncGroup), w.syncGroup)
	if w.smallNotes {
		fault := kfault(kmsg.TxnOffsetCommit, kerr.OffsetMetadataTooLarge)
		fault.When = func(r kmsg.Request) bool { return largestNote(r.(*kmsg.TxnOffsetCommitRequest)) > 400 }
		w.cluster.Fault(fault)
	}
	for i, f := range w.refusals {
		fault := kfault(f.key, f.err)
		fault.Topic = f.topic
		if f.partition >= 0 {
			fault.Partitions = []int32{f.partition}
		}
		fault.When = func(kmsg.Request) bool {
			if w.isOver() || !f.has(w.now()) {
				return false
			}
			hit := w.draw("refusal", i, w.call("refusal")).sometimes(f.share)
			if hit {
				w.log.add("broker", "says", f.key.Name(), f.err.Message, f.topic, f.partition)
			}
			return hit
		}
		w.cluster.Fault(fault)
	}
	for i := range w.topics {
		for p := range w.partitions {
			w.judge(topicName(i), p)
		}
	}
}

// largestNote is the length of the longest metadata in the request.
func largestNote(req *kmsg.TxnOffsetCommitRequest) (n int) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if p.Metadata != nil {
				n = max(n, len(*p.Metadata))
			}
		}
	}
	return n
}

// judge lets a partition refuse batches that hold a bad record.
func (w *world) judge(topic string, partition int32) {
	for _, verdict := range []struct {
		of  trouble
		err *kerr.Error
	}{{poison, kerr.InvalidRecord}, {weak, kerr.UnknownServerError}} {
		f := kfault(kmsg.Produce, verdict.err)
		f.Topic, f.Partitions = topic, []int32{partition}
		f.When = func(req kmsg.Request) bool {
			return w.guilty(req.(*kmsg.ProduceRequest), topic, partition, verdict.of)
		}
		w.cluster.Fault(f)
	}
}

// guilty looks for records with a trouble that still count against their batch.
func (w *world) guilty(req *kmsg.ProduceRequest, topic string, partition int32, of trouble) (found bool) {
	for _, t := range req.Topics {
		if t.Topic != topic && t.TopicID != w.topicIDs[topic] {
			continue
		}
		for _, p := range t.Partitions {
			if p.Partition != partition || !bytes.Contains(p.Records, []byte(marks[of])) {
				continue
			}
			for _, event := range eventsIn(p.Records) {
				if w.troubleOf(event) == of && (of == poison || w.call("weak "+event) <= w.draw("weak", event).IntN(6)) {
					w.log.add("broker", "refuses", event, marks[of])
					found = true
				}
			}
		}
	}
	return found
}

// eventsIn finds the ids of the events in a batch. Payloads are JSON with the id in front, and nothing is compressed.
func eventsIn(batch []byte) (ids []string) {
	for rest := batch; ; {
		_, after, found := bytes.Cut(rest, []byte(`{"id":"`))
		if !found {
			return ids
		}
		id, after, _ := bytes.Cut(after, []byte(`"`))
		ids, rest = append(ids, string(id)), after
	}
}

// initProducer answers as a broker does to a producer that asks to go on after its id was taken over: kfake would let
// it in.
func (w *world) initProducer(r kmsg.Request) (kmsg.Response, error, bool) {
	w.cluster.KeepControl()
	req := r.(*kmsg.InitProducerIDRequest)
	if req.TransactionalID == nil {
		return nil, nil, false
	}
	if req.ProducerID < 0 {
		w.call("taken " + *req.TransactionalID)
		return nil, nil, false
	}
	w.mu.Lock()
	taken := w.calls["taken "+*req.TransactionalID]
	w.mu.Unlock()
	if taken < 2 {
		return nil, nil, false
	}
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ErrorCode = kerr.ProducerFenced.Code
	w.log.add("broker", "fences", *req.TransactionalID)
	return resp, nil, true
}

// takeOver takes over the transactional id of a commit whose answer was lost, before it is asked for again: as a relay
// does that thinks this one gone.
func (w *world) takeOver(request []byte) {
	req := kmsg.NewPtrEndTxnRequest()
	if !decode(request, req) || !w.draw("stranger", req.TransactionalID).sometimes(w.strangers) {
		return
	}
	w.log.add("stranger", "takes over", req.TransactionalID)
	w.linger.Go(func() {
		within, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		init := kmsg.NewPtrInitProducerIDRequest()
		init.TransactionalID, init.TransactionTimeoutMillis = &req.TransactionalID, 10_000
		_, _ = init.RequestWith(within, w.care)
	})
}

// torment restarts brokers and moves leaders and coordinators, until the span is over.
func (w *world) torment() {
	for i := 0; ; i++ {
		d := w.draw("broker", i)
		wait := d.after(w.restarts + w.moves)
		if w.now()+wait > w.span {
			return
		}
		time.Sleep(wait)
		if d.Float64()*(w.restarts+w.moves) < w.restarts {
			w.restart(d)
			continue
		}
		switch d.IntN(4) {
		case 0:
			w.log.add("broker", "all leaders move")
			w.cluster.ShufflePartitionLeaders()
		case 1:
			w.log.add("broker", "coordinators move")
			w.cluster.RehashCoordinators()
		case 2:
			topic, partition, node := outboxName+".postrider", d.Int32N(w.lanes), d.Int32N(int32(w.brokers))
			w.log.add("broker", "leader moves", topic, partition, node)
			_ = w.cluster.MoveTopicPartition(topic, partition, node)
		case 3:
			w.log.add("broker", "compacts")
			w.cluster.Compact()
		}
	}
}

// restart takes a broker away for a while: it is not reached, and others take its place. The controller keeps its
// place, since kfake chooses no other.
func (w *world) restart(d dice) {
	node := d.Int32N(int32(w.brokers))
	down := min(d.upTo(6*time.Second), w.span-w.now())
	w.log.add("broker", "goes down", node, down)
	address := brokerAddress(int(node))
	w.setDown(address, true)
	controller := int(node) == w.brokers-1
	if !controller {
		_ = w.cluster.RemoveNode(node)
	}
	time.Sleep(down)
	if !controller {
		_, _, _ = w.cluster.AddNode(node, firstPort+int(node))
	}
	w.setDown(address, false)
	w.log.add("broker", "is back", node)
}

func (w *world) setDown(address string, down bool) {
	w.mu.Lock()
	w.down[address] = down
	links := slices.Clone(w.links)
	w.mu.Unlock()
	if down {
		for _, l := range links {
			l.cut(address)
		}
	}
}
