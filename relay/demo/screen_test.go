package demo

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// terminal is a screen's other side: a buffer, and keys that are pressed when asked for.
type terminal struct {
	mu  sync.Mutex
	out bytes.Buffer
	in  *io.PipeReader
	key *io.PipeWriter
}

func newTerminal(t *testing.T) *terminal {
	term := &terminal{}
	term.in, term.key = io.Pipe()
	t.Cleanup(func() { _ = term.key.Close() }) // ends the goroutine that reads keys
	return term
}

func (tm *terminal) Write(p []byte) (int, error) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	return tm.out.Write(p)
}

func (tm *terminal) text() string {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	return tm.out.String()
}

func (tm *terminal) press(keys string) { _, _ = io.WriteString(tm.key, keys) }

func (tm *terminal) screen() *Screen {
	return &Screen{In: tm.in, Out: tm, Size: func() (int, int) { return 80, 24 }}
}

func TestScreen_DrawsWhatChanged(t *testing.T) {
	t.Parallel()
	tm := newTerminal(t)
	s := tm.screen()
	require.NoError(t, s.draw(calm(), ""))
	first := tm.text()
	require.Contains(t, first, "\x1b[2J")
	require.Equal(t, 24, strings.Count(first, ";1H"), "every line once")

	require.NoError(t, s.draw(calm(), ""))
	require.Equal(t, beginFrame+endFrame, tm.text()[len(first):], "nothing changed, nothing drawn")

	before := len(tm.text())
	later := calm()
	later.Elapsed += time.Second
	later.OrdersCommitted++
	require.NoError(t, s.draw(later, ""))
	changed := tm.text()[before:]
	require.Equal(t, 2, strings.Count(changed, ";1H"), "the clock and the orders: %q", changed)
	require.NotContains(t, changed, "\x1b[2J", "no flicker")

	before = len(tm.text())
	s.Size = func() (int, int) { return 60, 20 }
	require.NoError(t, s.draw(later, ""))
	require.Equal(t, 20, strings.Count(tm.text()[before:], ";1H"), "a new size draws everything")
}

// TestScreen_Keys plays with a whole demo through the keys of the view.
func TestScreen_Keys(t *testing.T) {
	t.Parallel()
	tm := newTerminal(t)
	screen := tm.screen()
	restored := 0
	screen.Raw = func() (func(), error) { return func() { restored++ }, nil }
	from := 0 // what was drawn before the last key does not count
	shown := func(pattern string) {
		t.Helper()
		re := regexp.MustCompile(pattern)
		require.Eventually(t, func() bool { return re.MatchString(tm.text()[from:]) }, time.Minute, 20*time.Millisecond, pattern)
		from = len(tm.text())
	}
	done := make(chan Summary, 1)
	go func() {
		s, err := Run(t.Context(), Options{Rate: 40, Linger: true, Dir: t.TempDir()}, screen)
		if err != nil {
			t.Error(err)
		}
		done <- s
	}()
	shown(`All is well`)
	tm.press("b")
	shown(`The broker is down`)
	tm.press("b")
	shown(`Healed: the \d+ events`)
	tm.press("p")
	shown(`is DEAD: topic`)
	tm.press("r")
	shown(`Repaired: 1 dead event`)
	tm.press("c")
	shown(`Both consumers crashed`)
	tm.press("\x1b[B") // an arrow does nothing
	tm.press("xp")     // keys that come together all count
	shown(`is DEAD: topic`)
	tm.press("d")
	shown(`Given up`)
	tm.press("q")
	s := <-done
	require.False(t, s.Broken(), "%+v", s)
	require.Equal(t, 1, s.Dead)
	require.Equal(t, 1, restored)
	require.True(t, strings.HasPrefix(tm.text(), enter))
	require.True(t, strings.HasSuffix(tm.text(), leave+farewell))
}

// TestScreen_RestoresAfterPanic: whatever happens, the terminal is as it was.
func TestScreen_RestoresAfterPanic(t *testing.T) {
	t.Parallel()
	tm := newTerminal(t)
	screen := tm.screen()
	restored := false
	screen.Raw = func() (func(), error) { return func() { restored = true }, nil }
	screen.Size = func() (int, int) { panic("no size") }
	_, err := Run(t.Context(), Options{Linger: true, Dir: t.TempDir()}, screen)
	require.ErrorContains(t, err, "no size")
	require.True(t, restored)
	require.Contains(t, tm.text(), leave)
}

func TestScreen_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	tm := newTerminal(t)
	screen := tm.screen()
	ctx, stop := context.WithCancel(t.Context())
	screen.Size = func() (int, int) { stop(); return 80, 24 } // a signal while it draws
	s, err := Run(ctx, Options{Linger: true, Dir: t.TempDir()}, screen)
	require.NoError(t, err)
	require.False(t, s.Broken(), "%+v", s)
	require.Contains(t, tm.text(), leave)
}
