import java.io.File;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client at work; compiles against kafka-clients 0.11 to 4.4. Tasks and events: tasks.py, program.py. */
public final class Client {
    private static final int PATTERNS = 251;
    private static final double PROGRESS_S = 0.25;
    private static final int MIB = 1 << 20;
    private static final String SECURITY = "org.apache.kafka.common.security.";
    private static final String STORE_PASSWORD = "changeit"; // certificates.py

    private final Map<String, String> task = new HashMap<>();
    private final TreeSet<Long> indexes = new TreeSet<>();
    private final List<String> errors = new ArrayList<>();
    private final Map<String, Integer> failed = new TreeMap<>();
    private byte[] pattern = new byte[0];
    private long records;
    private long bytes;
    private long corrupt;
    private double reportedS;
    private long reportedRecords;
    private volatile boolean stopRequested;

    public static void main(String[] words) throws Exception {
        Client client = new Client();
        for (String word : words) {
            int equals = word.indexOf('=');
            client.task.put(word.substring(0, equals), word.substring(equals + 1));
        }
        try {
            client.run();
        } catch (Exception error) {
            emit("error", "\"text\": " + quoted(error.toString()));
            throw error;
        }
        System.exit(0);
    }

    private void run() throws Exception {
        Thread stop = new Thread(this::awaitEndOfInput);
        stop.setDaemon(true);
        stop.start();
        switch (text("operation")) {
            case "produce": produce(); break;
            case "consume": consume(); break;
            default: administer();
        }
    }

    // ---------------------------------------------------------------- produce

    private void produce() throws Exception {
        boolean transactional = !text("transactional_id").isEmpty();
        boolean idempotent = transactional || text("idempotent").equals("true");
        Properties settings = common();
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("acks", idempotent ? "all" : text("acks"));
        settings.put("enable.idempotence", String.valueOf(idempotent));
        settings.put("batch.size", text("batch_bytes"));
        // What a greedy client has in hand when it ends: kept small, or its close outlives the test.
        settings.put("buffer.memory", String.valueOf(Math.max(MIB, 4 * number("batch_bytes"))));
        if (transactional) {
            settings.put("transactional.id", text("transactional_id"));
        }
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        if (transactional) {
            producer.initTransactions();
        }
        List<Long> open = new ArrayList<>();
        long transaction = 0;
        long sent = 0;
        double startS = nowS();
        while (isDue(sent, startS)) {
            if (transactional && open.isEmpty()) {
                producer.beginTransaction();
            }
            long index = number("first_index") + sent++;
            send(producer, index, !transactional);
            open.add(index);
            if (transactional && open.size() == number("transaction_records")) {
                end(producer, transaction++, open);
            }
            if (!transactional) {
                open.clear();
            }
        }
        if (!open.isEmpty()) {
            end(producer, transaction, open);
        }
        producer.flush();
        double throttleMs = throttleMs(producer.metrics());
        producer.close();
        done(throttleMs);
    }

    /** Whether one more record is to be sent; waits until its time has come. */
    private boolean isDue(long sent, double startS) throws InterruptedException {
        double elapsedS = nowS() - startS;
        boolean enough = number("records") > 0 && sent >= number("records");
        boolean late = decimal("duration_s") > 0 && elapsedS >= decimal("duration_s");
        if (enough || late || stopRequested) {
            return false;
        }
        if (number("rate_bytes_per_s") > 0) {
            double dueS = (double) sent * number("record_bytes") / number("rate_bytes_per_s");
            Thread.sleep(Math.max(0, (long) ((dueS - elapsedS) * 1000)));
        }
        return true;
    }

    private void send(KafkaProducer<byte[], byte[]> producer, long index, boolean tallied) {
        int size = (int) number("record_bytes");
        byte[] value = payload(index, size);
        int partition = (int) (number("partition") + index % number("partitions"));
        producer.send(new ProducerRecord<>(text("topic"), partition, null, value), (where, error) -> {
            if (error != null) {
                synchronized (this) {
                    errors.add(error.toString());
                    failed.merge(error.getClass().getSimpleName(), 1, Integer::sum);
                }
            } else if (tallied) {
                add(index, size);
            }
        });
    }

    /** Every third transaction is aborted, as in program.py. */
    private void end(KafkaProducer<byte[], byte[]> producer, long transaction, List<Long> open) {
        if (transaction % 3 == 2) {
            producer.flush();
            producer.abortTransaction();
        } else {
            producer.commitTransaction();
            open.forEach(index -> add(index, (int) number("record_bytes")));
        }
        open.clear();
    }

    // ---------------------------------------------------------------- consume

    private void consume() throws Exception {
        boolean inGroup = !text("group").isEmpty();
        Properties settings = common();
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.partition.fetch.bytes", text("partition_fetch_bytes"));
        settings.put("fetch.max.wait.ms", text("fetch_wait_ms"));
        settings.put("isolation.level", text("committed_only").equals("true") ? "read_committed" : "read_uncommitted");
        settings.put("enable.auto.commit", String.valueOf(inGroup));
        if (inGroup) {
            settings.put("group.id", text("group"));
        }
        if (text("protocol").equals("consumer")) {
            settings.put("group.protocol", "consumer");
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        if (inGroup) {
            consumer.subscribe(Collections.singletonList(text("topic")), new Assignments());
        } else {
            List<TopicPartition> assigned = new ArrayList<>();
            for (int partition = 0; partition < number("partitions"); partition++) {
                assigned.add(new TopicPartition(text("topic"), partition));
            }
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
        }
        Poll poll = new Poll(consumer);
        double deadlineS = nowS() + decimal("duration_s");
        while (!stopRequested && nowS() < deadlineS && (number("records") == 0 || records < number("records"))) {
            for (ConsumerRecord<byte[], byte[]> record : poll.next()) {
                receive(record.value());
            }
            tick();
        }
        double throttleMs = throttleMs(consumer.metrics());
        consumer.close();
        done(throttleMs);
    }

    /** `poll(long)` until 1.1, `poll(Duration)` since 2.0, and only that since 4.0. */
    private static final class Poll {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Method method;
        private final Object timeout;

        Poll(KafkaConsumer<byte[], byte[]> consumer) throws NoSuchMethodException {
            this.consumer = consumer;
            boolean hasDuration = Arrays.stream(KafkaConsumer.class.getMethods())
                .anyMatch(each -> each.getName().equals("poll") && each.getParameterTypes()[0] != long.class);
            Class<?> type = hasDuration ? java.time.Duration.class : long.class;
            method = KafkaConsumer.class.getMethod("poll", type);
            timeout = hasDuration ? java.time.Duration.ofMillis(200) : (Object) 200L;
        }

        @SuppressWarnings("unchecked")
        ConsumerRecords<byte[], byte[]> next() throws ReflectiveOperationException {
            return (ConsumerRecords<byte[], byte[]>) method.invoke(consumer, timeout);
        }
    }

    private static final class Assignments implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            emit("revoked", "\"partitions\": " + numbers(partitions));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            emit("assigned", "\"partitions\": " + numbers(partitions));
        }

        private static String numbers(Collection<TopicPartition> partitions) {
            TreeSet<Integer> found = new TreeSet<>();
            partitions.forEach(each -> found.add(each.partition()));
            return found.toString();
        }
    }

    // ---------------------------------------------------------------- administer

    private void administer() throws Exception {
        try (AdminClient admin = AdminClient.create(common())) {
            List<String> brokers = new ArrayList<>();
            for (Node node : admin.describeCluster().nodes().get()) {
                brokers.add(quoted(node.idString()) + ": " + quoted(node.host() + ":" + node.port()));
            }
            admin.createTopics(Collections.singleton(new NewTopic(text("topic"), 1, (short) 1))).all().get();
            TreeSet<String> names = new TreeSet<>(admin.listTopics().names().get());
            while (!names.contains(text("topic"))) { // created is not yet known everywhere
                Thread.sleep(100);
                names = new TreeSet<>(admin.listTopics().names().get());
            }
            List<String> topics = new ArrayList<>();
            names.forEach(name -> topics.add(quoted(name)));
            emit("admin", "\"brokers\": {" + String.join(", ", brokers) + "}, \"topics\": " + topics);
        }
    }

    // ---------------------------------------------------------------- payloads and tally

    private byte[] payload(long index, int size) {
        if (pattern.length != PATTERNS + size) {
            byte[] fresh = new byte[PATTERNS + size];
            for (int position = 0; position < fresh.length; position++) {
                fresh[position] = (byte) (position * 131 + (position >> 8));
            }
            pattern = fresh;
        }
        byte[] value = new byte[size];
        ByteBuffer.wrap(value).putLong(index);
        System.arraycopy(pattern, (int) (index % PATTERNS), value, Long.BYTES, size - Long.BYTES);
        return value;
    }

    private void receive(byte[] value) {
        long index = value.length < Long.BYTES ? -1 : ByteBuffer.wrap(value).getLong();
        add(index >= 0 && Arrays.equals(value, payload(index, value.length)) ? index : -1, value.length);
    }

    private synchronized void add(long index, int size) {
        records++;
        bytes += size;
        if (index < 0) {
            corrupt++;
        } else {
            indexes.add(index);
        }
        tick();
    }

    /** Reports what is new, but not too often. */
    private synchronized void tick() {
        if (records != reportedRecords && nowS() - reportedS >= PROGRESS_S) {
            reportedS = nowS();
            reportedRecords = records;
            List<String> kinds = new ArrayList<>();
            failed.forEach((kind, count) -> kinds.add(quoted(kind) + ": " + count));
            String lost = ", \"failed\": {" + String.join(", ", kinds) + "}";
            emit("progress", "\"records\": " + records + ", \"bytes\": " + bytes + lost);
        }
    }

    private synchronized void done(double throttleMs) {
        List<String> seen = new ArrayList<>();
        long first = -1;
        long last = -1;
        for (long index : indexes) {
            if (first >= 0 && index != last + 1) {
                seen.add("[" + first + ", " + last + "]");
                first = -1;
            }
            first = first < 0 ? index : first;
            last = index;
        }
        if (first >= 0) {
            seen.add("[" + first + ", " + last + "]");
        }
        List<String> said = new ArrayList<>();
        errors.stream().limit(20).forEach(error -> said.add(quoted(error)));
        emit("done", "\"records\": " + records + ", \"bytes\": " + bytes + ", \"seen\": " + seen + ", \"corrupt\": " + corrupt
            + ", \"errors\": " + said + ", \"throttle_ms\": " + throttleMs);
    }

    private static double throttleMs(Map<MetricName, ? extends Metric> metrics) throws ReflectiveOperationException {
        double most = 0;
        for (Map.Entry<MetricName, ? extends Metric> each : metrics.entrySet()) {
            if (each.getKey().name().endsWith("throttle-time-max")) {
                double value = valueOf(each.getValue());
                most = Double.isNaN(value) ? most : Math.max(most, value);
            }
        }
        return most;
    }

    /** `value` until 0.11, `metricValue` since 1.0, and only that since 3.0. */
    private static double valueOf(Metric metric) throws ReflectiveOperationException {
        boolean isNew = Arrays.stream(Metric.class.getMethods()).anyMatch(each -> each.getName().equals("metricValue"));
        Object value = Metric.class.getMethod(isNew ? "metricValue" : "value").invoke(metric);
        return value instanceof Double ? (Double) value : 0;
    }

    // ---------------------------------------------------------------- words in, events out

    private Properties common() throws java.io.IOException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", text("bootstrap"));
        settings.put("client.id", text("client_id"));
        settings.put("security.protocol", text("security.protocol"));
        addStore(settings, "truststore", text("security.ca"));
        addStore(settings, "keystore", text("security.certificate"));
        String mechanism = text("security.mechanism");
        if (!mechanism.isEmpty()) {
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", login(mechanism, settings));
        }
        return settings;
    }

    private String login(String mechanism, Properties settings) throws java.io.IOException {
        switch (mechanism) {
            case "OAUTHBEARER": return bearer(settings);
            case "GSSAPI": return keytab(settings);
            default: return password(mechanism);
        }
    }

    /** The PKCS #12 file beside a PEM file: certificates.py makes both. */
    private static void addStore(Properties settings, String store, String pem) {
        if (!pem.isEmpty()) {
            settings.put("ssl." + store + ".type", "PKCS12");
            settings.put("ssl." + store + ".location", pem.replaceAll("[.]pem$", ".p12"));
            settings.put("ssl." + store + ".password", STORE_PASSWORD);
        }
    }

    private String password(String mechanism) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String token = text("security.is_delegation_token").equals("true") ? " tokenauth=\"true\"" : "";
        return SECURITY + module + " required username=" + quoted(text("security.username"))
            + " password=" + quoted(text("security.password")) + token + ";";
    }

    private String keytab(Properties settings) {
        System.setProperty("java.security.krb5.conf", text("security.krb5_conf"));
        settings.put("sasl.kerberos.service.name", "kafka");
        return "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="
            + quoted(text("security.keytab")) + " principal=" + quoted(text("security.username")) + ";";
    }

    private String bearer(Properties settings) throws java.io.IOException {
        String module = SECURITY + "oauthbearer.OAuthBearerLoginModule required";
        String token = text("security.token");
        if (token.isEmpty()) {
            return module + " unsecuredLoginStringClaim_sub=" + quoted(text("security.username")) + ";";
        }
        File file = File.createTempFile("client", ".jwt");
        file.deleteOnExit();
        Files.write(file.toPath(), token.getBytes(StandardCharsets.US_ASCII));
        String url = file.toURI().toString().replaceFirst("^file:/+", "file:///");
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
        settings.put("sasl.login.callback.handler.class", SECURITY + "oauthbearer.OAuthBearerLoginCallbackHandler");
        settings.put("sasl.oauthbearer.token.endpoint.url", url);
        return module + ";";
    }

    private void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) { }
        } catch (java.io.IOException closed) {
            // ended is ended
        }
        stopRequested = true;
    }

    private String text(String name) {
        return task.get(name);
    }

    private long number(String name) {
        return Long.parseLong(task.get(name));
    }

    private double decimal(String name) {
        return Double.parseDouble(task.get(name));
    }

    /** System.nanoTime is CLOCK_MONOTONIC on Linux, as Python's time.monotonic. */
    private static double nowS() {
        return System.nanoTime() / 1e9;
    }

    private static synchronized void emit(String event, String rest) {
        System.out.println("{\"event\": \"" + event + "\", \"at_s\": " + nowS() + ", " + rest + "}");
        System.out.flush();
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\t", " ") + '"';
    }
}
