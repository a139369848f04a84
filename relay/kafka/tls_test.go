package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "Test CA"}, IsCA: true, BasicConstraintsValid: true})
	return a
}

func (a *authority) sign(t testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key
}

func certPEM(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

func keyPEM(t testing.TB, key *ecdsa.PrivateKey) string {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// server makes a TLS configuration for 127.0.0.1, or for another name.
func (a *authority) server(t testing.TB, template x509.Certificate) *tls.Config {
	if template.DNSNames == nil {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	cert, key := a.sign(t, &template)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
}

func file(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestSink_WritesOverTLSWithAClientCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	serverTLS := ca.server(t, x509.Certificate{})
	serverTLS.ClientAuth = tls.RequireAndVerifyClientCert
	serverTLS.ClientCAs = x509.NewCertPool()
	serverTLS.ClientCAs.AddCert(ca.cert)
	c := cluster(t, kfake.TLS(serverTLS), kfake.SeedTopics(1, "t"))
	cert, key := ca.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "relay"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	seed := c.ListenAddrs()[0]
	store := file(t, "store.pem", keyPEM(t, key)+certPEM(cert))
	for name, more := range map[string][]string{
		"files":  {"ssl.truststore.location", file(t, "ca.pem", certPEM(ca.cert)), "ssl.keystore.location", store},
		"inline": {"ssl.truststore.certificates", certPEM(ca.cert), "ssl.keystore.key", keyPEM(t, key), "ssl.keystore.certificate.chain", certPEM(cert), "ssl.truststore.type", "PEM"},
		"no name": {"ssl.truststore.certificates", certPEM(ca.cert), "ssl.keystore.location", store,
			"ssl.endpoint.identification.algorithm", "", "ssl.enabled.protocols", "TLSv1.2"},
	} {
		cfg := parsed(t, properties(seed, append(more, "security.protocol", "SSL")...))
		require.Equal(t, "User:CN=relay", cfg.Principal(), name)
		s := open(t, cfg, Options{})
		require.NoError(t, s.Ping(t.Context()), name)
		require.Nil(t, send(t, s, record("t", "k", "v"))[0].Failure, name)
	}
}

// A key that is renewed on disk is used for the next connection.
func TestTLS_ReadsFilesAnew(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	path := file(t, "store.pem", "")
	write := func(name string) {
		cert, key := ca.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}})
		require.NoError(t, os.WriteFile(path, []byte(keyPEM(t, key)+certPEM(cert)), 0o600))
	}
	write("old")
	cfg := parsed(t, properties("a:1", "security.protocol", "SSL", "ssl.keystore.location", path))
	require.Equal(t, "User:CN=old", cfg.Principal())
	write("new")
	require.Equal(t, "User:CN=new", cfg.Principal())
	tlsConfig, err := cfg.tls.config("host")
	require.NoError(t, err)
	require.Equal(t, "CN=new", tlsConfig.Certificates[0].Leaf.Subject.String())
}

func TestParse_KeysAndStores(t *testing.T) {
	t.Parallel()
	data := func(name string) string {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		return string(b)
	}
	chain := data("cert.pem")
	for _, name := range []string{"key-clear.pem", "key-aes-256-cbc-hmacWithSHA256.pem", "key-aes-128-cbc-hmacWithSHA1.pem", "key-des3-hmacWithSHA512.pem"} {
		cfg := parsed(t, properties("a:1", "security.protocol", "SSL", "ssl.keystore.key", data(name),
			"ssl.keystore.certificate.chain", chain, "ssl.key.password", "open sesame"))
		require.Equal(t, "User:CN=relay,O=Postrider Tests", cfg.Principal(), name)
	}
	for want, more := range map[string][]string{
		"ssl.keystore.key: ssl.key.password does not open the key":                        {"ssl.keystore.key", data("key-aes-256-cbc-hmacWithSHA256.pem"), "ssl.keystore.certificate.chain", chain, "ssl.key.password", "closed"},
		"ssl.keystore.key: the key is encrypted, set ssl.key.password":                    {"ssl.keystore.key", data("key-aes-256-cbc-hmacWithSHA256.pem"), "ssl.keystore.certificate.chain", chain},
		"ssl.keystore.key: the key's encryption is too old; convert it: openssl":          {"ssl.keystore.key", data("key-old-pbes1.pem"), "ssl.keystore.certificate.chain", chain, "ssl.key.password", "open sesame"},
		"ssl.keystore.key: the key is encrypted in the old OpenSSL way; convert":          {"ssl.keystore.key", data("key-old-openssl.pem"), "ssl.keystore.certificate.chain", chain, "ssl.key.password", "x"},
		"ssl.keystore.certificate.chain: is missing beside ssl.keystore.key":              {"ssl.keystore.key", data("key-clear.pem")},
		"ssl.keystore.key: is missing beside":                                             {"ssl.keystore.certificate.chain", chain},
		"ssl.keystore.location: tls: ":                                                    {"ssl.keystore.location", filepath.Join("testdata", "cert.pem")},
		"ssl.truststore.location: open /nowhere":                                          {"ssl.truststore.location", "/nowhere"},
		"is a JKS store, and only PEM can be read; convert it: keytool":                   {"ssl.truststore.location", file(t, "t.jks", "\xfe\xed\xfe\xed\x00\x00")},
		"looks like a PKCS12 store, and only PEM can be read; convert it: openssl pkcs12": {"ssl.truststore.location", file(t, "t.p12", "\x30\x82\x03\xc6")},
		"is not a PEM file": {"ssl.truststore.location", file(t, "t.txt", "hello")},
		"ssl.truststore.certificates: holds no certificate":                                {"ssl.truststore.certificates", "-----BEGIN NOTHING-----"},
		`ssl.truststore.type: "PKCS12" stores cannot be read here`:                         {"ssl.truststore.type", "PKCS12"},
		`ssl.enabled.protocols: "TLSv1" is neither TLSv1.2 nor TLSv1.3`:                    {"ssl.enabled.protocols", "TLSv1,TLSv1.2"},
		`ssl.cipher.suites: "TLS_RSA_WITH_RC4_128_SHA" is not a cipher suite that is safe`: {"ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_RC4_128_SHA"},
		`ssl.endpoint.identification.algorithm: "LDAPS" is neither https nor empty`:        {"ssl.endpoint.identification.algorithm", "LDAPS"},
		`security.protocol: "TLS" is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL`:  {"security.protocol", "TLS"},
	} {
		_, problems, _ := Parse(properties("a:1", append([]string{"security.protocol", "SSL"}, more...)...))
		require.Contains(t, reasons(problems), want)
		require.NotContains(t, reasons(problems), "open sesame")
	}
}

func FuzzDecryptPKCS8(f *testing.F) {
	for _, name := range []string{"key-aes-256-cbc-hmacWithSHA256.pem", "key-des3-hmacWithSHA512.pem", "key-old-pbes1.pem"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		block, _ := pem.Decode(data)
		f.Add(block.Bytes)
	}
	f.Fuzz(func(_ *testing.T, der []byte) { _, _ = decryptPKCS8(der, "open sesame") })
}
