import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.atomic.*;
import java.util.function.Consumer;
import java.util.zip.CRC32;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java producer; arguments and output are those of writer.py, without FAMILY. */
public final class Writer implements Runnable {
    private static final int VALUE_BYTES = 200, TRANSACTION_RECORDS = 50, PARTITIONS = 3; // ledger.py, writer.py
    private static final int MOST_OUTSTANDING = 2000, ABORTED_EACH = 3, LINGER_MS = 20;
    private static final int DELIVERY_MS = 120_000, TRANSACTION_MS = 60_000;

    private final String bootstrap, mode, topic;
    private final int firstNumber;
    private final double rate;
    private final Path stop;
    private final PrintWriter output;
    private final AtomicInteger outstanding = new AtomicInteger();
    private volatile boolean failed;
    private long sent, startNs = System.nanoTime();

    private Writer(String bootstrap, String folder, String rate, String[] share) throws IOException {
        this.bootstrap = bootstrap;
        this.mode = share[0];
        this.topic = share[1];
        this.firstNumber = Integer.parseInt(share[2]);
        this.rate = Double.parseDouble(rate);
        this.stop = Paths.get(folder, "stop");
        this.output = new PrintWriter(new FileWriter(new File(folder, "java-" + mode), StandardCharsets.UTF_8));
    }

    public static void main(String[] words) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (String share : Arrays.copyOfRange(words, 3, words.length)) {
            threads.add(new Thread(new Writer(words[0], words[1], words[2], share.split(":"))));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(0);
    }

    @Override
    public void run() {
        for (int number = firstNumber; !Files.exists(stop); number++) {
            outstanding.set(0);
            KafkaProducer<byte[], byte[]> producer = null;
            try {
                producer = new KafkaProducer<>(settings());
                if (mode.equals("transactional")) {
                    producer.initTransactions();
                    transactions(producer, number);
                } else {
                    records(producer, number);
                }
                return;
            } catch (Exception error) {
                write("failed " + number + " -1 " + error.getClass().getSimpleName());
                if (producer != null) {
                    producer.close(java.time.Duration.ZERO);
                }
            }
        }
    }

    private Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", "java-" + mode);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("linger.ms", LINGER_MS);
        settings.put("delivery.timeout.ms", DELIVERY_MS);
        settings.put("acks", mode.equals("one") ? "1" : "all");
        boolean exactlyOnce = mode.equals("idempotent") || mode.equals("transactional");
        settings.put("enable.idempotence", exactlyOnce);
        if (!exactlyOnce) {
            settings.put("max.in.flight.requests.per.connection", 1);
        }
        if (mode.equals("transactional")) {
            settings.put("transactional.id", "java-" + mode);
            settings.put("transaction.timeout.ms", TRANSACTION_MS);
        }
        String authority = System.getenv("LEDGER_CA");
        if (authority != null) {
            settings.put("security.protocol", "SSL");
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", authority);
        }
        return settings;
    }

    private void records(KafkaProducer<byte[], byte[]> producer, int number) throws InterruptedException {
        for (long sequence = 0; isDue(); sequence++) {
            send(producer, number, sequence, this::write);
        }
        producer.flush();
    }

    private void transactions(KafkaProducer<byte[], byte[]> producer, int number) throws InterruptedException {
        for (long transaction = 0; !Files.exists(stop); transaction++) {
            List<String> acked = Collections.synchronizedList(new ArrayList<>());
            failed = false;
            producer.beginTransaction();
            for (long of = 0; of < TRANSACTION_RECORDS; of++) {
                isDue();
                send(producer, number, transaction * TRANSACTION_RECORDS + of, acked::add);
            }
            producer.flush();
            if (failed || transaction % ABORTED_EACH == ABORTED_EACH - 1) {
                producer.abortTransaction();
                write("aborted " + number + " " + transaction);
            } else {
                producer.commitTransaction();
                acked.forEach(this::write);
            }
        }
    }

    /** Waits until the next record is due; false when it is time to end. */
    private boolean isDue() throws InterruptedException {
        while (!Files.exists(stop)) {
            boolean full = outstanding.get() >= MOST_OUTSTANDING;
            if (!full && System.nanoTime() - startNs >= sent / rate * 1e9) {
                sent++;
                return true;
            }
            if (full) { // what could not be sent meanwhile is not made up for
                startNs = System.nanoTime();
                sent = 0;
            }
            Thread.sleep(5);
        }
        return false;
    }

    private void send(KafkaProducer<byte[], byte[]> producer, int number, long sequence, Consumer<String> acked) {
        int partition = (int) (sequence % PARTITIONS);
        outstanding.incrementAndGet();
        producer.send(new ProducerRecord<>(topic, partition, null, value(number, sequence, partition)), (where, error) -> {
            outstanding.decrementAndGet();
            if (error != null) {
                failed = true;
                write("failed " + number + " " + sequence + " " + error.getClass().getSimpleName());
            } else {
                long offset = where.hasOffset() ? where.offset() : -1;
                acked.accept("acked " + number + " " + sequence + " " + partition + " " + offset + " " + System.nanoTime() / 1_000_000);
            }
        });
    }

    private static byte[] value(int number, long sequence, int partition) {
        ByteBuffer value = ByteBuffer.allocate(VALUE_BYTES);
        value.putInt(number).putLong(sequence).putShort((short) partition);
        while (value.remaining() > Integer.BYTES) {
            value.put((byte) sequence);
        }
        CRC32 crc = new CRC32();
        crc.update(value.array(), 0, value.position());
        return value.putInt((int) crc.getValue()).array();
    }

    private synchronized void write(String line) {
        output.println(line);
        output.flush();
    }
}
