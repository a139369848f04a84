package relay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestDecodeHeaders_ValuesAndOrder holds P11 for headers: order kept, strings as they are, other values
// with every digit they were written with (case W05).
func TestDecodeHeaders_ValuesAndOrder(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``: "", ` null `: "", `{}`: "", ` { } `: "",
		`{"b":"1","a":"2","b":"3"}`: "b=1 a=2 b=3",
		` {"z":"ä","n":12345678901234567890.10,"x":[1, 2],"q":null,"t":true} `: "z=ä n=12345678901234567890.10 x=[1, 2] q=null t=true",
		`{"e":"a\"b\u0000c","s":""}`: "e=a\"b\x00c s=",
		`{"o":{"k" : "v"}}`:          `o={"k" : "v"}`,
	} {
		hs, err := relay.DecodeHeaders([]byte(text))
		require.NoError(t, err, text)
		var got []string
		for _, h := range hs {
			got = append(got, h.Name+"="+string(h.Value))
		}
		require.Equal(t, want, strings.Join(got, " "), text)
	}
}

// TestDecodeHeaders_Errors names the position and never what stands there.
func TestDecodeHeaders_Errors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":"secret" "b":1}`: "headers: invalid JSON at 15",
		`{"a":"secret"`:        "headers: invalid JSON at 14",
		`[1]`:                  "headers: not a JSON object",
		`"secret"`:             "headers: not a JSON object",
		`{"a":"b"} x`:          "headers: invalid JSON at 11",
		"{\"a\":\"b\nc\"}":     "headers: invalid JSON at 8",
	} {
		_, err := relay.DecodeHeaders([]byte(text))
		require.EqualError(t, err, want, text)
	}
}

// FuzzDecodeHeaders compares the short way with the standard decoder's idea of the object.
func FuzzDecodeHeaders(f *testing.F) {
	for _, seed := range []string{`{"a":"b"}`, `{"a":"b","c":1}`, `{"a":"\ud83d"}`, `{"a" : "b" , "c" : "d" }`, `{"a":"b",}`, `{,}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		hs, err := relay.DecodeHeaders(text)
		var want map[string]json.RawMessage
		wantErr := json.Unmarshal(text, &want)
		if len(bytes.TrimSpace(text)) == 0 {
			wantErr = nil
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, the standard decoder says %v", text, err, wantErr)
		}
		last := map[string]string{}
		for _, h := range hs {
			last[h.Name] = string(h.Value)
		}
		for name, raw := range want {
			value := string(raw)
			var s string
			if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
				value = s
			}
			if last[name] != value {
				t.Fatalf("%q: header %s is %q, want %q", text, fmt.Sprintf("%q", name), last[name], value)
			}
		}
	})
}
