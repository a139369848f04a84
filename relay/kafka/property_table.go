package kafka

// propertiesByName holds every name that the Java producer knows (client version 4.3), those of the
// other clients that turn up in shared files, and two spellings of our own.
var propertiesByName = index(appliedProperties, securityProperties, noEffectProperties, refusedProperties)

func index(tables ...[]Property) map[string]Property {
	m := make(map[string]Property)
	for _, t := range tables {
		for _, p := range t {
			m[p.Name] = p
		}
	}
	return m
}

var appliedProperties = []Property{
	applied("bootstrap.servers", "", "brokers to find the cluster by, as host:port, separated by commas",
		setSeeds),
	applied("client.id", "postrider", "the name that brokers show for this client in their logs and quotas",
		setClientID),
	applied("client.dns.lookup", "use_all_dns_ips", "every address of a name is tried",
		oneOf("every address of a name is always tried", "use_all_dns_ips")),
	applied("acks", "all", "an event is SENT only once all in-sync replicas have its record",
		oneOf("a record that only some replicas have can be lost with their leader, after its event was marked SENT", "all", "-1")),
	applied("enable.idempotence", "true", "a resent batch is written once, and in its place",
		oneOf("without it a resent batch is written twice, or after a later one", "true")),
	applied("max.in.flight.requests.per.connection", "5", "at most 5, as Kafka asks of an idempotent producer; a partition has one batch under way at most",
		integer(1, 5, func(*Config, int64) {})),
	applied("max.request.size", "", "bytes of the largest record, before compression; when it is not set each topic's own max.message.bytes is the limit",
		integer(1024, maxRecord, func(c *Config, v int64) { c.MaxRequestSize = int(v) })),
	applied("buffer.memory", "33554432", "bytes of unanswered records from earlier batches above which no new ones are taken",
		integer(1<<20, 1<<40, func(c *Config, v int64) { c.BufferMemory = v })),
	applied("compression.type", "none", "none, gzip, snappy, lz4 or zstd",
		choice(func(c *Config, v string) { c.Compression = v }, "none", "gzip", "snappy", "lz4", "zstd")),
	applied("compression.gzip.level", "-1", "1 (fast) to 9 (small), -1 for the codec's own", level("gzip", -1, 9)),
	applied("compression.lz4.level", "9", "1 (fast) to 17 (small)", level("lz4", 1, 17)),
	applied("compression.zstd.level", "3", "1 (fast) to 22 (small)", level("zstd", -131072, 22)),
	applied("request.timeout.ms", "20000", "a broker that does not answer for this long is connected to anew; it may spend half of it on collecting the replicas' acknowledgements",
		millis(1000, 1_800_000, func(c *Config, d durationMS) { c.requestTimeout = d })),
	applied("socket.connection.setup.timeout.ms", "5000", "how long one attempt to connect may take, TLS included",
		millis(100, 120_000, func(c *Config, d durationMS) { c.dialTimeout = d })),
	applied("retry.backoff.ms", "100", "the first pause before a failed request is repeated",
		millis(1, 60_000, func(c *Config, d durationMS) { c.retryBackoff = d })),
	applied("retry.backoff.max.ms", "1000", "the longest pause before a failed request is repeated",
		millis(1, 60_000, func(c *Config, d durationMS) { c.retryBackoffMax = d })),
	applied("metadata.max.age.ms", "300000", "how often the cluster's layout is asked for without cause",
		millis(1000, 3_600_000, func(c *Config, d durationMS) { c.metadataMaxAge = d })),
	applied("connections.max.idle.ms", "540000", "an idle connection is closed after this long",
		millis(1000, 900_000, func(c *Config, d durationMS) { c.connIdle = d })),
	applied("send.buffer.bytes", "-1", "the socket's send buffer; -1 leaves it to the operating system",
		integer(-1, 1<<30, func(c *Config, v int64) { c.sendBuffer = max(0, int(v)) })),
	applied("receive.buffer.bytes", "-1", "the socket's receive buffer; -1 leaves it to the operating system",
		integer(-1, 1<<30, func(c *Config, v int64) { c.receiveBuffer = max(0, int(v)) })),
	applied("group.protocol", "classic", "claim: lanes: classic, where the relays share the lanes out and relay.session_timeout holds, or consumer, where the brokers do both by their own settings (KIP-848, Kafka 4.0 or later)",
		choice(func(c *Config, v string) { c.consumerProtocol = v == "consumer" }, "classic", "consumer")),
	applied("group.instance.id", "", "claim: lanes: names this relay among those of its group, so that it has its lanes again when it comes back within the session timeout; it keeps them when it stops",
		setInstance),
	applied("enable.metrics.push", "false", "whether brokers may collect this client's metrics",
		boolean(func(c *Config, v bool) { c.telemetry = v })),
}

var securityProperties = []Property{
	applied("security.protocol", "PLAINTEXT", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
		choice(func(c *Config, v string) { c.Protocol = v }, "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
	applied("sasl.mechanism", "", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
		mechanism),
	secret("sasl.jaas.config", "the Java client's login line; username and password, or clientId and clientSecret, are taken from it",
		func(c *Config, v string) error { return c.sasl.readJAAS(v) }),
	applied("sasl.username", "", "the user's name, in place of sasl.jaas.config; any character is allowed",
		text(func(c *Config, v string) { c.sasl.username = v })),
	secret("sasl.password", "the user's password, in place of sasl.jaas.config; any character is allowed",
		keep(func(c *Config, v Secret) { c.sasl.password = v })),
	secret("sasl.oauthbearer.token", "a bearer token to present as it is (OAUTHBEARER)",
		keep(func(c *Config, v Secret) { c.sasl.token = v })),
	applied("sasl.oauthbearer.token.endpoint.url", "", "where bearer tokens come from: file:///path, read for each connection, or the https address of an OAuth server (client credentials grant)",
		setEndpoint),
	applied("sasl.oauthbearer.client.credentials.client.id", "", "the client's id at the OAuth server",
		text(func(c *Config, v string) { c.sasl.clientID = v })),
	secret("sasl.oauthbearer.client.credentials.client.secret", "the client's secret at the OAuth server",
		keep(func(c *Config, v Secret) { c.sasl.clientSecret = v })),
	applied("sasl.oauthbearer.scope", "", "the scope to ask the OAuth server for",
		text(func(c *Config, v string) { c.sasl.scope = v })),
	applied("sasl.oauthbearer.header.urlencode", "false", "whether the client's id and secret are URL-encoded before they are sent, as the standard asks and some servers do not",
		boolean(func(c *Config, v bool) { c.sasl.urlEncode = v })),
	applied("sasl.login.callback.handler.class", "", "only the Java client's own handler for OAUTHBEARER, whose work is done here too",
		loginHandler),

	applied("ssl.truststore.type", "PEM", "PEM", storeType),
	applied("ssl.truststore.location", "", "a PEM file with the certificates of the authorities to trust; the system's own when it is not set",
		text(func(c *Config, v string) { c.tls.trustFile = v })),
	applied("ssl.truststore.certificates", "", "the same, written out",
		text(func(c *Config, v string) { c.tls.trustPEM = v })),
	applied("ssl.keystore.type", "PEM", "PEM", storeType),
	applied("ssl.keystore.location", "", "a PEM file with this client's private key and certificate chain; read for each connection, so that a renewed one is taken up",
		text(func(c *Config, v string) { c.tls.keyFile = v })),
	applied("ssl.keystore.certificate.chain", "", "this client's certificate chain, written out as PEM",
		text(func(c *Config, v string) { c.tls.chainPEM = v })),
	secret("ssl.keystore.key", "this client's private key, written out as PEM",
		keep(func(c *Config, v Secret) { c.tls.keyPEM = v })),
	secret("ssl.key.password", "the password of an encrypted PKCS #8 key",
		keep(func(c *Config, v Secret) { c.tls.keyPassword = v })),
	applied("ssl.endpoint.identification.algorithm", "https", "https checks that the certificate is for the broker's host; empty leaves that out",
		func(c *Config, v string) error { return c.tls.setIdentification(v) }),
	applied("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "the versions of TLS that may be used",
		func(c *Config, v string) error { return c.tls.setVersions(v) }),
	applied("ssl.protocol", "TLSv1.3", "the newest version of TLS to use: TLSv1.2, TLSv1.3, or TLS for the newest there is",
		choice(func(c *Config, v string) { c.tls.capped = v == "TLSv1.2" }, "TLS", "TLSv1.2", "TLSv1.3")),
	applied("ssl.cipher.suites", "", "cipher suites for TLS 1.2, by their IANA names",
		func(c *Config, v string) error { return c.tls.setCiphers(v) }),
}

func applied(name, def, doc string, set func(*Config, string) error) Property {
	return Property{Name: name, Kind: Applied, Default: def, Doc: doc, set: set}
}

func secret(name, doc string, set func(*Config, string) error) Property {
	return Property{Name: name, Kind: Applied, Doc: doc, Secret: true, set: set}
}
