package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// tlsSettings is what the ssl.* properties say.
type tlsSettings struct {
	trustFile, trustPEM string
	keyFile, chainPEM   string
	keyPEM, keyPassword Secret

	verifyHost bool
	capped     bool // nothing newer than TLS 1.2
	least      uint16
	most       uint16
	ciphers    []uint16
}

func (t *tlsSettings) setIdentification(v string) error {
	switch strings.ToLower(v) {
	case "https":
		t.verifyHost = true
	case "":
		t.verifyHost = false
	default:
		return fmt.Errorf("%q is neither https nor empty", v)
	}
	return nil
}

func (t *tlsSettings) setVersions(v string) error {
	known := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	t.least, t.most = 0, 0
	for name := range strings.SplitSeq(v, ",") {
		version, ok := known[strings.TrimSpace(name)]
		if !ok {
			return fmt.Errorf("%q is neither TLSv1.2 nor TLSv1.3; older versions are not safe", strings.TrimSpace(name))
		}
		if t.least == 0 || version < t.least {
			t.least = version
		}
		t.most = max(t.most, version)
	}
	return nil
}

func (t *tlsSettings) setCiphers(v string) error {
	for name := range strings.SplitSeq(v, ",") {
		id := uint16(0)
		for _, suite := range tls.CipherSuites() {
			if suite.Name == strings.TrimSpace(name) {
				id = suite.ID
			}
		}
		if id == 0 {
			return fmt.Errorf("%q is not a cipher suite that is safe and known here", strings.TrimSpace(name))
		}
		t.ciphers = append(t.ciphers, id)
	}
	return nil
}

// config reads the files anew, so that a renewed key or authority is taken up with the next
// connection.
func (t *tlsSettings) config(host string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, CipherSuites: t.ciphers}
	if t.least != 0 {
		cfg.MinVersion, cfg.MaxVersion = t.least, t.most
	}
	if t.capped {
		cfg.MaxVersion = tls.VersionTLS12
	}
	roots, err := t.roots()
	if err != nil {
		return nil, err
	}
	cfg.RootCAs = roots
	cert, err := t.certificate()
	if err != nil {
		return nil, err
	}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	if !t.verifyHost {
		// The chain is still checked: only the name is left out.
		cfg.InsecureSkipVerify = true // VerifyConnection takes its place
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, roots) }
	}
	return cfg, nil
}

func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the broker presented no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range s.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := s.PeerCertificates[0].Verify(opts)
	return err
}

// propertyError is a Problem in the making.
type propertyError struct {
	property string
	err      error
}

func (e *propertyError) Error() string { return e.property + ": " + e.err.Error() }
func (e *propertyError) Unwrap() error { return e.err }

// roots returns nil for the system's own authorities.
func (t *tlsSettings) roots() (*x509.CertPool, error) {
	property, data := "ssl.truststore.certificates", []byte(t.trustPEM)
	if t.trustFile != "" {
		property = "ssl.truststore.location"
		var err error
		if data, err = readPEM(t.trustFile); err != nil {
			return nil, &propertyError{property, err}
		}
	}
	if len(data) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, &propertyError{property, errors.New("holds no certificate")}
	}
	return pool, nil
}

// certificate returns nil when this client has none.
func (t *tlsSettings) certificate() (*tls.Certificate, error) {
	property, key, chain := "ssl.keystore.key", []byte(t.keyPEM.Reveal()), []byte(t.chainPEM)
	if t.keyFile != "" {
		property = "ssl.keystore.location"
		data, err := readPEM(t.keyFile)
		if err != nil {
			return nil, &propertyError{property, err}
		}
		key, chain = data, data
	}
	switch {
	case len(key) == 0 && len(chain) == 0:
		return nil, nil
	case len(key) == 0:
		return nil, &propertyError{"ssl.keystore.key", errors.New("is missing beside ssl.keystore.certificate.chain")}
	case len(chain) == 0:
		return nil, &propertyError{"ssl.keystore.certificate.chain", errors.New("is missing beside ssl.keystore.key")}
	}
	key, err := t.decrypted(key)
	if err != nil {
		return nil, &propertyError{property, err}
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, &propertyError{property, err}
	}
	return &cert, nil
}

// decrypted returns data's private key in clear, as PEM.
func (t *tlsSettings) decrypted(data []byte) ([]byte, error) {
	for rest := data; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return data, nil // not encrypted; X509KeyPair says what is wrong with it, if anything is
		case block.Headers["DEK-Info"] != "":
			return nil, errors.New("the key is encrypted in the old OpenSSL way; convert it: openssl pkcs8 -topk8 -in KEY.pem -out NEW.pem")
		case block.Type == "ENCRYPTED PRIVATE KEY":
			if t.keyPassword.Empty() {
				return nil, errors.New("the key is encrypted, set ssl.key.password")
			}
			der, err := decryptPKCS8(block.Bytes, t.keyPassword.Reveal())
			if err != nil {
				return nil, err
			}
			return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
		}
	}
}

// toPEM tells how to turn Java's stores into what can be read here.
const toPEM = "convert it: keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12, " +
	"then openssl pkcs12 -in STORE.p12 -nodes -out STORE.pem; set the type to PEM and the location to STORE.pem"

func storeType(_ *Config, v string) error {
	if strings.EqualFold(v, "PEM") {
		return nil
	}
	return fmt.Errorf("%q stores cannot be read here, only PEM; %s", v, toPEM)
}

func readPEM(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	switch {
	case bytes.Contains(data, []byte("-----BEGIN ")):
		return data, nil
	case bytes.HasPrefix(data, []byte{0xfe, 0xed, 0xfe, 0xed}):
		return nil, fmt.Errorf("%s is a JKS store, and only PEM can be read; %s", path, toPEM)
	case len(data) > 1 && data[0] == 0x30 && data[1]&0x80 != 0:
		return nil, fmt.Errorf("%s looks like a PKCS12 store, and only PEM can be read; convert it: openssl pkcs12 -in %s -nodes -out STORE.pem", path, path)
	}
	return nil, fmt.Errorf("%s is not a PEM file", path)
}

// handshake wraps a connection to host.
func (t *tlsSettings) handshake(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	cfg, err := t.config(host)
	if err != nil {
		return nil, err
	}
	wrapped := tls.Client(conn, cfg)
	if err := wrapped.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return wrapped, nil
}

func (p *parser) finishTLS() {
	if !p.cfg.usesTLS() {
		p.idle("ssl.", "has no effect: security.protocol is "+p.cfg.Protocol+", without TLS")
		return
	}
	if _, err := p.cfg.tls.config("broker"); err != nil {
		property := "ssl.keystore.location"
		var at *propertyError
		if errors.As(err, &at) {
			property, err = at.property, at.err
		}
		p.problem(property, err.Error(), "")
	}
}

func (c *Config) usesTLS() bool  { return strings.HasSuffix(c.Protocol, "SSL") }
func (c *Config) usesSASL() bool { return strings.HasPrefix(c.Protocol, "SASL_") }

// idle gives a notice for given properties that the protocol leaves without work.
func (p *parser) idle(prefix, text string) {
	for name := range p.given {
		if prop, known := propertiesByName[name]; known && prop.Kind == Applied && strings.HasPrefix(name, prefix) {
			p.notices = append(p.notices, Notice{Property: name, Text: text})
		}
	}
}
