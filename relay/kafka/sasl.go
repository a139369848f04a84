package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// saslSettings is what the sasl.* properties say.
type saslSettings struct {
	username   string
	password   Secret
	tokenAuth  bool   // SCRAM with a delegation token
	module     string // the class that sasl.jaas.config names
	token      Secret
	endpoint   string // file:///path or an http address
	clientID   string
	scope      string
	urlEncode  bool
	extensions map[string]string

	clientSecret Secret
}

const javaOAuthHandler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

func loginHandler(_ *Config, v string) error {
	// Older clients knew the same handler in a package named secured.
	if v == javaOAuthHandler || v == strings.Replace(javaOAuthHandler, ".oauthbearer.", ".oauthbearer.secured.", 1) {
		return nil
	}
	return fmt.Errorf("no class can be loaded; only %s is known, whose work is done here", javaOAuthHandler)
}

func mechanism(c *Config, v string) error {
	switch strings.ToUpper(v) {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER":
		c.Mechanism = strings.ToUpper(v)
		return nil
	case "GSSAPI":
		return errors.New("GSSAPI (Kerberos) is not supported; use SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER")
	}
	return fmt.Errorf("%q is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", v)
}

// finishSASL checks that the mechanism has what it needs.
func (p *parser) finishSASL() {
	if !p.cfg.usesSASL() {
		p.idle("sasl.", "has no effect: security.protocol is "+p.cfg.Protocol+", without SASL")
		p.cfg.Mechanism = ""
		return
	}
	s := &p.cfg.sasl
	switch {
	case p.cfg.Mechanism == "":
		if p.given["sasl.mechanism"] == "" {
			p.problem("sasl.mechanism", "is missing beside security.protocol="+p.cfg.Protocol, "name PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
		}
	case p.cfg.Mechanism == "OAUTHBEARER":
		p.finishOAuth()
	case s.username == "" && p.given["sasl.jaas.config"] == "":
		p.problem("sasl.username", "is missing beside sasl.mechanism="+p.cfg.Mechanism, "set sasl.username and sasl.password, or sasl.jaas.config")
	case s.password.Empty() && p.given["sasl.jaas.config"] == "":
		p.problem("sasl.password", "is missing beside sasl.username", "")
	}
	want := map[string]string{"PLAIN": "PlainLoginModule", "OAUTHBEARER": "OAuthBearerLoginModule"}[p.cfg.Mechanism]
	if want == "" {
		want = "ScramLoginModule"
	}
	if s.module != "" && p.cfg.Mechanism != "" && !strings.HasSuffix(s.module, "."+want) {
		p.problem("sasl.jaas.config", fmt.Sprintf("names %s, and sasl.mechanism %s needs %s", s.module, p.cfg.Mechanism, want), "")
	}
}

func (p *parser) finishOAuth() {
	s := &p.cfg.sasl
	switch {
	case !s.token.Empty():
	case s.endpoint == "":
		p.problem("sasl.oauthbearer.token.endpoint.url", "is missing beside sasl.mechanism=OAUTHBEARER", "name file:///path or the OAuth server's address, or set sasl.oauthbearer.token")
	case s.tokenFile() != "":
		if _, err := readToken(s.tokenFile()); err != nil {
			p.problem("sasl.oauthbearer.token.endpoint.url", err.Error(), "")
		}
	case s.clientID == "" || s.clientSecret.Empty():
		p.problem("sasl.oauthbearer.client.credentials.client.id", "the client's id or secret for the OAuth server is missing", "set sasl.oauthbearer.client.credentials.client.id and .client.secret, or clientId and clientSecret in sasl.jaas.config")
	}
}

// mechanism builds what the client logs in with; nil without SASL. http carries requests to an OAuth
// server and lives as long as the sink.
func (c *Config) mechanism() sasl.Mechanism {
	if !c.usesSASL() {
		return nil
	}
	s := c.sasl
	switch c.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.username, Pass: s.password.Reveal()}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.username, Pass: s.password.Reveal(), IsToken: s.tokenAuth}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.username, Pass: s.password.Reveal(), IsToken: s.tokenAuth}.AsSha512Mechanism()
	}
	fetch := s.tokens()
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := fetch(ctx)
		if err != nil {
			return oauth.Auth{}, err
		}
		return oauth.Auth{Token: token, Extensions: s.extensions}, nil
	})
}

// tokens returns where bearer tokens come from.
func (s saslSettings) tokens() func(context.Context) (string, error) {
	switch {
	case !s.token.Empty():
		return func(context.Context) (string, error) { return s.token.Reveal(), nil }
	case s.tokenFile() != "":
		return func(context.Context) (string, error) { return readToken(s.tokenFile()) }
	}
	return (&oauthServer{settings: s}).token
}

func (s saslSettings) tokenFile() string {
	path, found := strings.CutPrefix(s.endpoint, "file://")
	if !found {
		return ""
	}
	return path
}

func readToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("%s holds no token", path)
	}
	return token, nil
}

// Principal is what brokers call this client in their ACLs, as far as the properties tell.
func (c *Config) Principal() string {
	switch {
	case c.usesSASL() && c.Mechanism == "OAUTHBEARER":
		if c.sasl.clientID != "" {
			return "User:" + c.sasl.clientID
		}
		return "User:<the token's subject>"
	case c.usesSASL():
		return "User:" + c.sasl.username
	case c.usesTLS():
		if cert, err := c.tls.certificate(); err == nil && cert != nil && cert.Leaf != nil {
			return "User:" + cert.Leaf.Subject.String()
		}
	}
	return "User:ANONYMOUS"
}
