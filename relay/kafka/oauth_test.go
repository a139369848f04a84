package kafka

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func oauthConfig(t *testing.T, more ...string) Config {
	t.Helper()
	return parsed(t, properties("a:1", append([]string{"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER"}, more...)...))
}

// login returns what the client sends first, which holds the token.
func login(t *testing.T, cfg Config) (string, error) {
	t.Helper()
	session, first, err := cfg.mechanism().Authenticate(t.Context(), "broker:9092")
	if err == nil {
		require.NotNil(t, session)
	}
	return string(first), err
}

func TestOAuth_TokenFromPropertyAndFile(t *testing.T) {
	t.Parallel()
	first, err := login(t, oauthConfig(t, "sasl.oauthbearer.token", "abc.def", "sasl.jaas.config", `x.OAuthBearerLoginModule required extension_pool="p1";`))
	require.NoError(t, err)
	require.Contains(t, first, "Bearer abc.def")
	require.Contains(t, first, "pool=p1")

	path := file(t, "token", "one\n")
	cfg := oauthConfig(t, "sasl.oauthbearer.token.endpoint.url", "file://"+path)
	first, err = login(t, cfg)
	require.NoError(t, err)
	require.Contains(t, first, "Bearer one\x01")
	require.NoError(t, os.WriteFile(path, []byte("two"), 0o600))
	first, err = login(t, cfg)
	require.NoError(t, err)
	require.Contains(t, first, "Bearer two", "a renewed file is used for the next connection")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = login(t, cfg)
	require.ErrorContains(t, err, "holds no token")
}

func TestOAuth_ClientCredentials(t *testing.T) {
	t.Parallel()
	asked, expires, status := 0, "3600", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		id, secret, _ := r.BasicAuth()
		require.Equal(t, "client", id)
		require.Equal(t, "s%cr/t", secret)
		require.NoError(t, r.ParseForm())
		require.Equal(t, url.Values{"grant_type": {"client_credentials"}, "scope": {"kafka"}}, r.PostForm)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"access_token": "t` + strings.Repeat("x", asked) + `", "expires_in": ` + expires + `, "echo": "s%cr/t"}`))
	}))
	t.Cleanup(server.Close)
	cfg := oauthConfig(t, "sasl.oauthbearer.token.endpoint.url", server.URL,
		"sasl.oauthbearer.client.credentials.client.id", "client", "sasl.oauthbearer.client.credentials.client.secret", "s%cr/t", "sasl.oauthbearer.scope", "kafka")
	require.Equal(t, "User:client", cfg.Principal())
	fetch := cfg.sasl.tokens()
	for range 3 {
		token, err := fetch(t.Context())
		require.NoError(t, err)
		require.Equal(t, "tx", token, "kept until shortly before it ends")
	}
	require.Equal(t, 1, asked)

	expires = "10" // ends within the margin
	fetch = cfg.sasl.tokens()
	for want := range 2 {
		_, err := fetch(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2+want, asked)
	}

	status = http.StatusUnauthorized
	_, err := fetch(t.Context())
	require.ErrorContains(t, err, "fetch a token from the OAuth server: it answered 401")
	require.NotContains(t, err.Error(), "s%cr/t")
}

func TestOAuth_EncodesCredentialsWhenTold(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, secret, _ := r.BasicAuth()
		require.Equal(t, "s%25cr%2Ft", secret)
		_, _ = w.Write([]byte(`{"access_token": "t"}`))
	}))
	t.Cleanup(server.Close)
	cfg := oauthConfig(t, "sasl.oauthbearer.token.endpoint.url", server.URL, "sasl.oauthbearer.header.urlencode", "true",
		"sasl.jaas.config", `x.OAuthBearerLoginModule required clientId="c" clientSecret="s%cr/t";`)
	_, err := login(t, cfg)
	require.NoError(t, err)
}
