package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ofTheControlTopic says whether an error tells that the control topic is not the one that this relay knows.
func ofTheControlTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID)
}

// doubt has the control topic looked at soon, when an error gives reason to.
func (g *Group) doubt(err error) {
	if !ofTheControlTopic(err) {
		return
	}
	select {
	case g.doubts <- struct{}{}:
	default:
	}
}

// Pauses between looks at the control topic: without a reason, and after one that an error asked for.
const (
	lookEvery = 5 * time.Second
	lookAgain = 500 * time.Millisecond
)

// watchControl returns true once the control topic is not the one that this relay shares lanes by: it was deleted, and
// perhaps made anew. Brokers know a topic by its id, and would refuse whatever this relay notes for ever.
func (g *Group) watchControl(ctx context.Context) bool {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		case <-g.doubts:
		}
		if g.controlGone(ctx) && rest(ctx, lookAgain) == nil && g.controlGone(ctx) { // a broker may be late in the news
			return true
		}
		if rest(ctx, lookAgain) != nil {
			return false
		}
	}
}

// controlGone asks whether the topic is missing, or another one. No answer is no reason to think so.
func (g *Group) controlGone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, g.lend.cfg.requestTimeout)
	defer cancel()
	topic, id := g.control()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, g.lend.current().Client)
	if err != nil || len(resp.Topics) != 1 {
		return false
	}
	switch err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); {
	case err != nil:
		return errors.Is(err, kerr.UnknownTopicOrPartition)
	default:
		return resp.Topics[0].TopicID != id
	}
}

// surrender lets go of all lanes while this relay is still the group's member for them, so that no other begins before
// what was in flight has come down: what was noted in the topic that is gone can tell it of nothing.
func (g *Group) surrender(ctx context.Context) {
	g.log.Warn("the control topic was deleted: the lanes are shared out anew with a new one, which the relay makes unless it is there; "+
		"events that a relay had sent and not marked when it died are sent again, since their progress is gone with the old topic", "topic", g.topic)
	g.mu.Lock()
	lanes := sorted(g.own)
	clear(g.own)
	clear(g.have)
	g.notify()
	g.mu.Unlock()
	g.giveBack(ctx, lanes)
}

// forget begins without knowledge of lanes, and with connections that do not remember the old topic.
func (g *Group) forget() {
	g.mu.Lock()
	g.client, g.id, g.gen, g.refused, g.counted = nil, "", -1, -1, 0
	clear(g.have)
	clear(g.own)
	clear(g.late)
	clear(g.logs)
	clear(g.lows)
	clear(g.wrote)
	g.notify()
	g.mu.Unlock()
	g.lend.renew(g.lend.current(), "the control topic "+g.topic+" is to be looked up anew")
}
