package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
)

// Screen is the live view of a terminal, redrawn five times a second, with keys.
type Screen struct {
	In    io.Reader // keys, one byte each
	Out   io.Writer
	Size  func() (width, height int)
	Color bool
	// Raw makes keys come one by one and returns what undoes it. Nil: they do already.
	Raw func() (restore func(), err error)

	drawn         []string // what stands on the terminal; nil when nothing of ours does
	width, height int
}

const (
	redrawEvery = 200 * time.Millisecond

	enter    = "\x1b[?1049h\x1b[?25l" // the other screen, no cursor
	leave    = "\x1b[?25h\x1b[?1049l"
	farewell = "Delivering what waits, then comparing the ledger, the topics and the consumers' tables ...\r\n"
	// Terminals that know these show a frame all at once; the others ignore them.
	beginFrame = "\x1b[?2026h"
	endFrame   = "\x1b[?2026l"
)

// NewScreen makes a screen of a terminal. Nothing happens to it before Watch.
func NewScreen(in, out *os.File, color bool) *Screen {
	return &Screen{
		In: in, Out: out, Color: color,
		Size: func() (int, int) {
			width, height, err := term.GetSize(int(out.Fd()))
			if err != nil || width <= 0 || height <= 0 {
				return 80, 24
			}
			return width, height
		},
		Raw: func() (func(), error) {
			before, err := term.MakeRaw(int(in.Fd()))
			if err != nil {
				return nil, fmt.Errorf("take over the terminal: %w", err)
			}
			return func() { _ = term.Restore(int(in.Fd()), before) }, nil
		},
	}
}

// Watch draws until ctx ends or somebody quits. The terminal is as it was when it returns; a panic in
// any goroutine of the demo's own ends the watch in order first.
func (s *Screen) Watch(ctx context.Context, d *Demo) error {
	if s.Raw != nil {
		restore, err := s.Raw()
		if err != nil {
			return err
		}
		defer restore()
	}
	_ = s.write(enter)
	defer func() { _ = s.write(leave + farewell) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pressed := s.listen(ctx)
	redraw := time.NewTicker(redrawEvery)
	defer redraw.Stop()
	note := ""
	for {
		snapshot, err := d.Snapshot(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.draw(&snapshot, note); err != nil {
			return nil // the terminal is gone
		}
		select {
		case <-ctx.Done():
			return nil
		case <-redraw.C:
		case key := <-pressed:
			var quit bool
			if quit, note = actAll(ctx, d, key, pressed); quit {
				return nil
			}
		}
	}
}

// listen reads keys until ctx ends. Its goroutine stays in Read until the next key: a terminal offers
// no portable way out, and the process ends soon.
func (s *Screen) listen(ctx context.Context) <-chan byte {
	const escape = 0x1b
	pressed := make(chan byte, 64)
	go func() {
		buf := make([]byte, 64)
		for {
			n, err := s.In.Read(buf)
			for _, key := range buf[:n] {
				if key == escape {
					break // an arrow or the like: the rest of it comes in the same read
				}
				select {
				case pressed <- key:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return pressed
}

// actAll does what key and those behind it mean, so that a slow machine does not draw between them.
func actAll(ctx context.Context, d *Demo, key byte, more <-chan byte) (quit bool, note string) {
	for {
		quit, err := act(ctx, d, key)
		if quit {
			return true, ""
		}
		if err != nil {
			note = "That did not work: " + err.Error()
		}
		select {
		case key = <-more:
		default:
			return false, note
		}
	}
}

// act does what a key means. Ctrl-C is a key in raw mode.
func act(ctx context.Context, d *Demo, key byte) (quit bool, err error) {
	const ctrlC, ctrlD = 3, 4
	switch key {
	case 'q', 'Q', ctrlC, ctrlD:
		return true, nil
	case 'b', 'B':
		return false, d.ToggleBroker(ctx)
	case 'p', 'P':
		return false, d.Poison(ctx)
	case 'r', 'R':
		return false, d.Repair(ctx)
	case 'd', 'D':
		return false, d.Discard(ctx)
	case 'c', 'C':
		d.CrashConsumers()
	}
	return false, nil
}

// draw writes the lines that have changed, in one write.
func (s *Screen) draw(snapshot *Snapshot, note string) error {
	width, height := s.Size()
	var b strings.Builder
	b.WriteString(beginFrame)
	if s.drawn == nil || width != s.width || height != s.height {
		b.WriteString("\x1b[2J")
		s.drawn, s.width, s.height = nil, width, height
	}
	lines := frame(snapshot, width, height, note)
	now := make([]string, height)
	for i := range now {
		// Lines fill the width, so that nothing of the last frame shines through.
		if i < len(lines) {
			now[i] = lines[i].render(width, s.Color)
		} else {
			now[i] = line{}.render(width, s.Color)
		}
		if s.drawn != nil && s.drawn[i] == now[i] {
			continue
		}
		b.WriteString("\x1b[" + strconv.Itoa(i+1) + ";1H" + now[i])
	}
	b.WriteString(endFrame)
	s.drawn = now
	return s.write(b.String())
}

func (s *Screen) write(text string) error {
	_, err := io.WriteString(s.Out, text)
	return err
}
