//go:build synctests

package sim

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What kfake's coordinator of classic groups does otherwise than a broker's, and would let the group stand still where
// a broker's would go on.

// syncGroup lets members wait in front of the coordinator until their leader has sent the assignment: kfake counts its
// members wrongly when one that it keeps waiting itself gives up.
func (w *world) syncGroup(r kmsg.Request) (kmsg.Response, error, bool) {
	w.cluster.KeepControl()
	req := r.(*kmsg.SyncGroupRequest)
	done := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(req.GroupAssignment) > 0 {
			w.synced = max(w.synced, req.Generation)
		}
		return w.synced >= req.Generation
	}
	w.log.add("broker", "SyncGroup", req.MemberID, req.Generation, len(req.GroupAssignment), w.synced)
	longest := time.Now().Add(w.session + time.Second) // then the leader counts as gone
	if !done() {
		w.cluster.SleepControl(func() {
			for !done() && time.Now().Before(longest) {
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return nil, nil, false
}

// keepAlive tells the coordinator that a member is there which waits for the answer to a JoinGroup: kfake lets the
// session of such a member run out and answers it no more, a broker waits for as long as the rebalance takes.
func (w *world) keepAlive(member string, closed, answered <-chan struct{}) {
	if member == "" {
		return
	}
	w.linger.Go(func() {
		for {
			select {
			case <-closed:
				return
			case <-answered:
				return
			case <-time.After(w.session / 3):
			}
			info := w.cluster.GroupInfo(outboxName + ".postrider")
			if info == nil {
				continue
			}
			within, cancel := context.WithTimeout(context.Background(), time.Second)
			req := kmsg.NewPtrHeartbeatRequest()
			req.Group, req.MemberID, req.Generation = outboxName+".postrider", member, info.Epoch
			_, _ = req.RequestWith(within, w.care)
			cancel()
		}
	})
}

// joining reads the member's id out of a JoinGroup request.
func joining(b []byte) string {
	req := kmsg.NewPtrJoinGroupRequest()
	if !decode(b, req) {
		return ""
	}
	return req.MemberID
}

// decode reads a request off the network.
func decode(b []byte, req kmsg.Request) bool {
	req.SetVersion(int16(binary.BigEndian.Uint16(b[6:])))
	body := b[12:]
	if n := int16(binary.BigEndian.Uint16(body)); n > 0 { // the client's id
		body = body[n:]
	}
	body = body[2:]
	if req.IsFlexible() {
		body = body[1:] // no tags
	}
	return req.ReadFrom(body) == nil
}

// nurse empties a group that has been rebalancing for longer than a broker lets it: kfake has lost count of its members.
func (w *world) nurse(done <-chan struct{}) {
	longest := w.drain + 12*time.Second // a rebalance takes drain + 10 s at most, see kafka.GroupOptions
	var since time.Time
	var epoch int32
	for sleepOr(time.Second, done) {
		info := w.cluster.GroupInfo(outboxName + ".postrider")
		if info == nil || info.State == "Stable" || info.State == "Empty" || info.Epoch != epoch {
			since = time.Now()
		}
		if info == nil || time.Since(since) < longest {
			epoch = 0
			if info != nil {
				epoch = info.Epoch
			}
			continue
		}
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = info.Group
		for _, m := range info.Members {
			member := kmsg.NewLeaveGroupRequestMember()
			member.MemberID = m.MemberID
			req.Members = append(req.Members, member)
		}
		within, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := req.RequestWith(within, w.care)
		cancel()
		w.log.add("broker", "kfake's group is stuck and is emptied", info.State, err)
		since = time.Now()
		w.mu.Lock()
		w.nursed = since
		w.mu.Unlock()
	}
}
