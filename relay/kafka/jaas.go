package kafka

import (
	"errors"
	"strings"
)

// readJAAS takes a line such as
//
//	org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="…";
//
// as the Java client reads it. Errors name no value: any of them may be a secret.
func (s *saslSettings) readJAAS(line string) error {
	words, err := jaasWords(line)
	if err != nil {
		return err
	}
	if len(words) < 3 || words[len(words)-1] != ";" {
		return errors.New(`is not of the form: package.SomeLoginModule required username="…" password="…";`)
	}
	switch strings.ToLower(words[1]) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return errors.New("has no control flag (required) after the login module")
	}
	s.module = words[0]
	options := words[2 : len(words)-1]
	if len(options)%3 != 0 {
		return errors.New(`has an option that is not of the form name="value"`)
	}
	for i := 0; i < len(options); i += 3 {
		if options[i+1] != "=" {
			return errors.New(`has an option that is not of the form name="value"`)
		}
		s.jaasOption(options[i], options[i+2])
	}
	return nil
}

func (s *saslSettings) jaasOption(name, value string) {
	switch name {
	case "username":
		s.username = value
	case "password":
		s.password = NewSecret(value)
	case "tokenauth":
		s.tokenAuth = strings.EqualFold(value, "true")
	case "clientId":
		s.clientID = value
	case "clientSecret":
		s.clientSecret = NewSecret(value)
	case "scope":
		s.scope = value
	default:
		if extension, found := strings.CutPrefix(name, "extension_"); found {
			if s.extensions == nil {
				s.extensions = make(map[string]string)
			}
			s.extensions[extension] = value
		}
	}
}

// jaasWords splits at spaces, "=" and ";" outside quotes.
func jaasWords(line string) ([]string, error) {
	var words []string
	for i := 0; i < len(line); {
		switch c := line[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case '=', ';':
			words = append(words, string(c))
			i++
		case '"', '\'':
			word, n, ok := quoted(line[i:])
			if !ok {
				return nil, errors.New("has a quote that is not closed")
			}
			words = append(words, word)
			i += n
		default:
			n := strings.IndexAny(line[i:], " \t\r\n=;\"'")
			if n < 0 {
				n = len(line) - i
			}
			words = append(words, line[i:i+n])
			i += n
		}
	}
	return words, nil
}

// quoted reads a quoted word with Java's escapes and returns it and the length it took.
func quoted(s string) (word string, n int, ok bool) {
	var b strings.Builder
	escapes := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', 'a': 7, 'v': 11}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == s[0]:
			return b.String(), i + 1, true
		case c == '\\' && i+1 < len(s):
			i++
			switch e, known := escapes[s[i]]; {
			case known:
				b.WriteByte(e)
			case s[i] >= '0' && s[i] <= '7':
				digits := octalLen(s[i:])
				value := 0
				for _, d := range s[i : i+digits] {
					value = value*8 + int(d-'0')
				}
				b.WriteRune(rune(value))
				i += digits - 1
			default:
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, false
}

// octalLen counts the digits of an octal escape: three when it starts with 0 to 3, else two at most.
func octalLen(s string) int {
	most := 2
	if s[0] <= '3' {
		most = 3
	}
	n := 0
	for n < most && n < len(s) && s[n] >= '0' && s[n] <= '7' {
		n++
	}
	return n
}
