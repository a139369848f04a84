package kafka

// noEffectProperties are settings that a shared client.properties may carry without harm. Each says
// why the relay does not follow it.
var noEffectProperties = []Property{
	noEffect("linger.ms", "the relay hands over whole batches, there is nothing to wait for"),
	noEffect("batch.size", "the relay's own batch decides; a partition's share is cut at 1 MiB or the topic's limit"),
	noEffect("delivery.timeout.ms", "the relay never gives a record up while the cluster does not answer: its event stays in the table"),
	noEffect("retries", "what may pass is repeated without limit, a verdict on a record is not; attempts are counted by relay.retry"),
	noEffect("max.block.ms", "a full buffer does not block: records wait in the table"),
	noEffect("metadata.max.idle.ms", "topics are kept while the relay runs"),
	noEffect("metadata.recovery.strategy", "bootstrap.servers are always tried again when no broker answers"),
	noEffect("metadata.recovery.rebootstrap.trigger.ms", "bootstrap.servers are always tried again when no broker answers"),
	noEffect("reconnect.backoff.ms", "retry.backoff.ms holds for connections too"),
	noEffect("reconnect.backoff.max.ms", "retry.backoff.max.ms holds for connections too"),
	noEffect("socket.connection.setup.timeout.max.ms", "attempts to connect always have socket.connection.setup.timeout.ms"),
	noEffect("key.serializer", "bytes go out as the table holds them"),
	noEffect("value.serializer", "bytes go out as the table holds them"),
	noEffect("partitioner.adaptive.partitioning.enable", "records without a key change partition by size alone"),
	noEffect("partitioner.availability.timeout.ms", "records without a key avoid partitions that owe an answer"),
	noEffect("metric.reporters", "metrics are at /metrics"),
	noEffect("metrics.num.samples", "metrics are at /metrics"),
	noEffect("metrics.recording.level", "metrics are at /metrics"),
	noEffect("metrics.sample.window.ms", "metrics are at /metrics"),
	noEffect("auto.include.jmx.reporter", "metrics are at /metrics"),
	noEffect("default.api.timeout.ms", "request.timeout.ms bounds each request"),
	noEffect("client.rack", "only consumers choose a broker by rack"),
	noEffect("transaction.timeout.ms", "the relay opens no transaction"),
	noEffect("transaction.two.phase.commit.enable", "the relay opens no transaction"),
	noEffect("sasl.login.refresh.buffer.seconds", "tokens are fetched anew shortly before they end"),
	noEffect("sasl.login.refresh.min.period.seconds", "tokens are fetched anew shortly before they end"),
	noEffect("sasl.login.refresh.window.factor", "tokens are fetched anew shortly before they end"),
	noEffect("sasl.login.refresh.window.jitter", "tokens are fetched anew shortly before they end"),
	noEffect("sasl.login.connect.timeout.ms", "a token is waited for as long as a connection"),
	noEffect("sasl.login.read.timeout.ms", "a token is waited for as long as a connection"),
	noEffect("sasl.login.retry.backoff.ms", "retry.backoff.ms holds for logins too"),
	noEffect("sasl.login.retry.backoff.max.ms", "retry.backoff.max.ms holds for logins too"),
	noEffect("sasl.oauthbearer.clock.skew.seconds", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.expected.audience", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.expected.issuer", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.jwks.endpoint.refresh.ms", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.jwks.endpoint.url", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.jwt.validator.class", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.scope.claim.name", "the broker checks tokens, the client does not"),
	noEffect("sasl.oauthbearer.sub.claim.name", "the broker checks tokens, the client does not"),
	noEffect("ssl.keymanager.algorithm", "Go's own TLS is used"),
	noEffect("ssl.trustmanager.algorithm", "Go's own TLS is used"),
	noEffect("ssl.provider", "Go's own TLS is used"),
	noEffect("ssl.secure.random.implementation", "Go's own TLS is used"),
	noEffect("security.providers", "Go's own TLS is used"),
	hidden(noEffect("ssl.truststore.password", "PEM files need none")),
	hidden(noEffect("ssl.keystore.password", "PEM files need none; ssl.key.password is the one of the key")),
}

// refusedProperties would change what the relay promises, or belong to another program.
var refusedProperties = []Property{
	refused("transactional.id", "the relay names its producers itself: one name in two of them would fence them in turns", "remove it"),
	refused("partitioner.class", "keys are spread as the Java client's default does (murmur2), and no class can be loaded", "remove it; choose partitions with routes"),
	refused("partitioner.ignore.keys", "without the key's partition there is no order", "remove it"),
	refused("interceptor.classes", "no class can be loaded", "remove it"),
	refused("config.providers", "no class can be loaded", "put secrets into the environment or into files (*_FILE)"),
	refused("ssl.engine.factory.class", "no class can be loaded", "remove it"),
	refused("sasl.client.callback.handler.class", "no class can be loaded", "remove it"),
	refused("sasl.login.class", "no class can be loaded", "remove it"),
	refused("sasl.oauthbearer.jwt.retriever.class", "no class can be loaded", "use sasl.oauthbearer.token.endpoint.url"),
	refused("sasl.kerberos.service.name", "Kerberos (GSSAPI) is not supported", "use SCRAM, PLAIN, OAUTHBEARER or a client certificate"),
	refused("sasl.kerberos.kinit.cmd", "Kerberos (GSSAPI) is not supported", "remove it"),
	refused("sasl.kerberos.min.time.before.relogin", "Kerberos (GSSAPI) is not supported", "remove it"),
	refused("sasl.kerberos.ticket.renew.jitter", "Kerberos (GSSAPI) is not supported", "remove it"),
	refused("sasl.kerberos.ticket.renew.window.factor", "Kerberos (GSSAPI) is not supported", "remove it"),
	refused("sasl.oauthbearer.assertion.algorithm", assertions, "use a client secret or a token file"),
	refused("sasl.oauthbearer.assertion.claim.aud", assertions, "use a client secret or a token file"),
	refused("sasl.oauthbearer.assertion.claim.exp.seconds", assertions, "use a client secret or a token file"),
	refused("sasl.oauthbearer.assertion.claim.iss", assertions, "use a client secret or a token file"),
	refused("sasl.oauthbearer.assertion.claim.jti.include", assertions, "use a client secret or a token file"),
	refused("sasl.oauthbearer.assertion.claim.nbf.seconds", assertions, "use a client secret or a token file"),
	refused("sasl.oauthbearer.assertion.claim.sub", assertions, "use a client secret or a token file"),
	refused("sasl.oauthbearer.assertion.file", assertions, "use a client secret or a token file"),
	refused("sasl.oauthbearer.assertion.private.key.file", assertions, "use a client secret or a token file"),
	hidden(refused("sasl.oauthbearer.assertion.private.key.passphrase", assertions, "use a client secret or a token file")),
	refused("sasl.oauthbearer.assertion.template.file", assertions, "use a client secret or a token file"),
	refused("bootstrap.controllers", "controllers take no records", "name brokers in bootstrap.servers"),

	refused("session.timeout.ms", "is relay.session_timeout here; with group.protocol: consumer the brokers decide (group.consumer.session.timeout.ms)", "remove it"),
	refused("heartbeat.interval.ms", "follows from relay.session_timeout; with group.protocol: consumer the brokers decide (group.consumer.heartbeat.interval.ms)", "remove it"),

	consumers("allow.auto.create.topics"), consumers("auto.commit.interval.ms"), consumers("auto.offset.reset"),
	consumers("check.crcs"), consumers("enable.auto.commit"), consumers("exclude.internal.topics"),
	consumers("fetch.max.bytes"), consumers("fetch.max.wait.ms"), consumers("fetch.min.bytes"),
	consumers("group.id"),
	consumers("group.remote.assignor"), consumers("isolation.level"),
	consumers("key.deserializer"), consumers("max.partition.fetch.bytes"), consumers("max.poll.interval.ms"),
	consumers("max.poll.records"), consumers("partition.assignment.strategy"),
	consumers("share.acknowledgement.mode"), consumers("share.acquire.mode"), consumers("value.deserializer"),
}

const assertions = "signed client assertions are not supported"

func noEffect(name, why string) Property {
	return Property{Name: name, Kind: NoEffect, Doc: "has no effect: " + why}
}

func refused(name, why, fix string) Property {
	return Property{Name: name, Kind: Refused, Doc: why, fix: fix}
}

func consumers(name string) Property {
	return refused(name, "is a consumer's setting, and the relay only produces", "remove it")
}

func hidden(p Property) Property {
	p.Secret = true
	return p
}
