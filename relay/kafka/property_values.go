package kafka

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// durationMS is a time.Duration that was written as milliseconds.
type durationMS = time.Duration

var errEmpty = errors.New("is empty")

func text(set func(*Config, string)) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" {
			return errEmpty
		}
		set(c, v)
		return nil
	}
}

func keep(set func(*Config, Secret)) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" {
			return errEmpty
		}
		set(c, NewSecret(v))
		return nil
	}
}

func integer(least, most int64, set func(*Config, int64)) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		if n < least || n > most {
			return fmt.Errorf("%d is not between %d and %d", n, least, most)
		}
		set(c, n)
		return nil
	}
}

func millis(least, most int64, set func(*Config, durationMS)) func(*Config, string) error {
	return integer(least, most, func(c *Config, n int64) { set(c, time.Duration(n)*time.Millisecond) })
}

func boolean(set func(*Config, bool)) func(*Config, string) error {
	return func(c *Config, v string) error {
		switch strings.ToLower(v) {
		case "true":
			set(c, true)
		case "false":
			set(c, false)
		default:
			return fmt.Errorf("%q is neither true nor false", v)
		}
		return nil
	}
}

func choice(set func(*Config, string), values ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		for _, want := range values {
			if strings.EqualFold(v, want) {
				set(c, want)
				return nil
			}
		}
		return fmt.Errorf("%q is not one of %s", v, strings.Join(values, ", "))
	}
}

// oneOf allows only values that mean what the relay does anyway, and says why others are refused.
func oneOf(why string, values ...string) func(*Config, string) error {
	return func(_ *Config, v string) error {
		if slices.ContainsFunc(values, func(want string) bool { return strings.EqualFold(v, want) }) {
			return nil
		}
		return fmt.Errorf("only %s is allowed: %s", strings.Join(values, " or "), why)
	}
}

func level(codec string, least, most int64) func(*Config, string) error {
	return integer(least, most, func(c *Config, n int64) {
		if c.levels == nil {
			c.levels = make(map[string]int)
		}
		c.levels[codec] = int(n)
	})
}

func setClientID(c *Config, v string) error {
	if v == "" || len(v) > 256 {
		return errors.New("must have 1 to 256 bytes")
	}
	c.ClientID = v
	return nil
}

// setInstance takes what brokers take for a name, and can show.
func setInstance(c *Config, v string) error {
	if badName(v) != "" {
		return errors.New("must have 1 to 249 letters, digits, '.', '_' or '-'")
	}
	c.InstanceID = v
	return nil
}

// setSeeds takes what the Java client takes: host:port pairs, a protocol before them is allowed and
// ignored, IPv6 addresses stand in brackets.
func setSeeds(c *Config, v string) error {
	var seeds, bad []string
	for part := range strings.SplitSeq(v, ",") {
		part = strings.TrimSpace(part)
		if _, after, found := strings.Cut(part, "://"); found {
			part = after
		}
		if part == "" {
			continue
		}
		host, port, err := net.SplitHostPort(part)
		n, numErr := strconv.Atoi(port)
		if err != nil || numErr != nil || host == "" || n < 1 || n > 65535 {
			bad = append(bad, strconv.Quote(part))
			continue
		}
		seeds = append(seeds, part)
	}
	switch {
	case len(bad) > 0:
		return fmt.Errorf("%s: not host:port", strings.Join(bad, ", "))
	case len(seeds) == 0:
		return errEmpty
	}
	c.Seeds = seeds
	return nil
}
