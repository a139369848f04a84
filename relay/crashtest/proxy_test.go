//go:build unix

package crashtest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and its server. It forwards bytes as TCP would: what a client that is
// gone had already sent still arrives, when the way is open again.
type proxy struct {
	addr   string
	server string
	frames func(p *proxy) framing // nil: bytes as they come

	requests, replies valve        // the two directions
	refuses           atomic.Bool  // new connections are closed at once
	usual             atomic.Int64 // added to each chunk, in both directions, nanoseconds
	delay             atomic.Int64 // more of it, in nanoseconds

	refused sync.Map // names and ids of topics that take no records (Kafka)

	// stopAfter, when set, are texts of requests; a connection that has sent them all, in this order, gets
	// no replies any more.
	stopAfter atomic.Pointer[[]string]
	point     point // where the conversation stops

	// cutReply and cutRequest end the connection on which the next reply or request comes, and throw
	// that away.
	cutReply, cutRequest atomic.Bool

	mu    sync.Mutex
	links map[*link]struct{}
	wait  sync.WaitGroup
}

// point is a request of a kind: from the first one on they are held on their way to the server, or nothing is
// heard any more on the connections that brought them.
type point struct {
	valve
	is    atomic.Pointer[func(request []byte) bool] // nil for none
	reply atomic.Bool
	met   atomic.Bool
}

// at stops the conversation at requests of the kind.
func (p *point) at(is func(request []byte) bool, reply bool) {
	p.met.Store(false)
	p.reply.Store(reply)
	p.hold()
	p.is.Store(&is)
}

func (p *point) lift() {
	p.is.Store(nil)
	p.release()
}

// passes is called with each request; false when its connection ended meanwhile.
func (p *point) passes(l *link, request []byte) bool {
	is := p.is.Load()
	if is == nil || !(*is)(request) {
		return true
	}
	if p.reply.Load() {
		l.mute.hold()
		p.met.Store(true)
		return true
	}
	p.met.Store(true)
	return p.pass(l.gone)
}

// having is the kind of requests in which a text stands.
func having(text string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(text)) }
}

// valve lets bytes through or holds them.
type valve struct {
	mu   sync.Mutex
	open chan struct{} // nil: open; else closed by release
	held int           // chunks that wait
}

func (v *valve) hold() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open == nil {
		v.open = make(chan struct{})
	}
}

func (v *valve) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open != nil {
		close(v.open)
		v.open = nil
	}
}

// pass waits until the valve is open; false when gone is closed first.
func (v *valve) pass(gone <-chan struct{}) bool {
	for {
		v.mu.Lock()
		open := v.open
		if open == nil {
			v.mu.Unlock()
			return true
		}
		v.held++
		v.mu.Unlock()
		cut := false
		select {
		case <-open:
		case <-gone:
			cut = true
		}
		v.mu.Lock()
		v.held--
		v.mu.Unlock()
		if cut {
			return false
		}
	}
}

// shut says whether the valve is closed.
func (v *valve) shut() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open != nil
}

// holds says whether something waits.
func (v *valve) holds() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.held > 0
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	gone           chan struct{} // closed when it was cut
	once           sync.Once
	mute           valve // no replies from here on (stopAfter)
	texts          *[]string
	sent           int // of texts, by the direction of requests
}

func (l *link) cut() {
	l.once.Do(func() {
		close(l.gone)
		_, _ = l.client.Close(), l.server.Close()
	})
}

// framing reads one chunk of each direction, and may change it.
type framing struct {
	request, reply func(from io.Reader) ([]byte, error)
}

// newProxy listens on a port of its own until the test ends.
func newProxy(t testing.TB, server string, frames func(*proxy) framing) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: listener.Addr().String(), server: server, frames: frames, links: map[*link]struct{}{}}
	t.Cleanup(func() {
		_ = listener.Close()
		p.refuses.Store(true)
		p.heal()
		p.cut()
		p.wait.Wait()
	})
	p.wait.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.connect(client)
		}
	})
	return p
}

func (p *proxy) connect(client net.Conn) {
	if p.refuses.Load() {
		reset(client)
		return
	}
	server, err := net.DialTimeout("tcp", p.server, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server, gone: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	f := framing{request: chunks(), reply: chunks()}
	if p.frames != nil {
		f = p.frames(p)
	}
	var both sync.WaitGroup
	both.Go(func() { p.carry(l, client, server, f.request, &p.requests, &p.cutRequest) })
	both.Go(func() { p.carry(l, server, client, f.reply, &p.replies, &p.cutReply) })
	p.wait.Go(func() {
		both.Wait()
		l.cut()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	})
}

// reset closes a connection so that the other side sees an error at once.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func chunks() func(io.Reader) ([]byte, error) {
	buf := make([]byte, 64<<10)
	return func(from io.Reader) ([]byte, error) {
		n, err := from.Read(buf)
		return buf[:n], err
	}
}

// carry copies one direction to its end and passes the end on.
func (p *proxy) carry(l *link, from, to net.Conn, next func(io.Reader) ([]byte, error), v *valve, cut *atomic.Bool) {
	for {
		chunk, err := next(from)
		if len(chunk) > 0 {
			if cut.CompareAndSwap(true, false) {
				l.cut()
				return
			}
			if to == l.server {
				p.muteAfter(l, chunk)
				if !p.point.passes(l, chunk) {
					return
				}
			}
			if d := time.Duration(p.usual.Load() + p.delay.Load()); d > 0 {
				time.Sleep(d)
			}
			if to == l.client && !l.mute.pass(l.gone) {
				return
			}
			if !v.pass(l.gone) {
				return
			}
			if _, err := to.Write(chunk); err != nil {
				l.cut()
				return
			}
		}
		if err != nil {
			// The end waits its turn too: a server behind a broken network does not see a client die.
			if v.pass(l.gone) && to == l.server {
				_ = to.(*net.TCPConn).CloseWrite()
			} else {
				l.cut()
			}
			return
		}
	}
}

func (p *proxy) muteAfter(l *link, request []byte) {
	texts := p.stopAfter.Load()
	if texts != l.texts {
		l.texts, l.sent = texts, 0
	}
	if texts == nil || l.sent == len(*texts) || !bytes.Contains(request, []byte((*texts)[l.sent])) {
		return
	}
	if l.sent++; l.sent == len(*texts) {
		l.mute.hold()
	}
}

// each calls f for every connection.
func (p *proxy) each(f func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		f(l)
	}
}

// cut ends every connection; what was held is lost.
func (p *proxy) cut() { p.each((*link).cut) }

// muteBehind gives no more replies on a connection whose requests held the texts, in this order.
func (p *proxy) muteBehind(texts ...string) { p.stopAfter.Store(&texts) }

// muted says whether a connection gets no replies any more.
func (p *proxy) muted() (yes bool) {
	p.each(func(l *link) { yes = yes || l.mute.shut() })
	return yes
}

// hole swallows everything, as a network does that lost its route.
func (p *proxy) hole() {
	p.requests.hold()
	p.replies.hold()
}

// down is a server that is not there: connections end, what was held is lost, new ones are refused.
func (p *proxy) down() {
	p.refuses.Store(true)
	p.cut()
}

// heal lets everything pass, what was held first.
func (p *proxy) heal() {
	p.point.lift()
	p.refuses.Store(false)
	p.delay.Store(0)
	p.stopAfter.Store(nil)
	p.each(func(l *link) { l.mute.release() })
	p.requests.release()
	p.replies.release()
}
