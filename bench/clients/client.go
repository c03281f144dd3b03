// Go's clients: `client bootstrap scenario topic count library`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const batchBytes = 16384

var (
	brokers []string
	topic   string
	ctx, _  = context.WithTimeout(context.Background(), 60*time.Second)
)

type step struct {
	name string
	call func() error
}

// A client has what the scenarios ask for; a call that it lacks is nil.
type client struct {
	produce     func(count int, pause time.Duration) (int, error)
	consume     func(count int, protocol string) (int, error)
	transaction func(count int) (int, error)
	steps       func() ([]step, error)
}

func value(index int) []byte { return []byte(fmt.Sprintf("%01000d", index)) }

func name(err error) string {
	var code *kerr.Error
	var saramaCode sarama.KError
	var goCode kafkago.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &code):
		return code.Message
	case errors.As(err, &saramaCode):
		return fmt.Sprintf("error %d", int16(saramaCode))
	case errors.As(err, &goCode):
		return fmt.Sprintf("error %d", int(goCode))
	}
	return reflect.TypeOf(err).String()
}

func only[T any](_ T, err error) error { return err }

func franz() client {
	open := func(more ...kgo.Opt) (*kgo.Client, error) {
		return kgo.NewClient(append(more, kgo.SeedBrokers(brokers...), kgo.ClientID(topic))...)
	}
	send := func(kafka *kgo.Client, first, count int, pause time.Duration) int {
		var acknowledged atomic.Int64
		for index := first; index < first+count; index++ {
			kafka.Produce(ctx, &kgo.Record{Topic: topic, Value: value(index)}, func(_ *kgo.Record, err error) {
				if err == nil {
					acknowledged.Add(1)
				}
			})
			time.Sleep(pause)
		}
		kafka.Flush(ctx)
		return int(acknowledged.Load())
	}
	return client{
		produce: func(count int, pause time.Duration) (int, error) {
			kafka, err := open(kgo.ProducerBatchMaxBytes(batchBytes), kgo.ProducerBatchCompression(kgo.NoCompression()))
			if err != nil {
				return 0, err
			}
			return send(kafka, 0, count, pause), nil
		},
		transaction: func(count int) (int, error) {
			kafka, err := open(kgo.TransactionalID(topic))
			if err != nil {
				return 0, err
			}
			done := 0
			for try := range 2 {
				err = errors.Join(err, kafka.BeginTransaction())
				sent := send(kafka, try*count, count, 0)
				if try == 0 {
					done = sent
				}
				err = errors.Join(err, kafka.EndTransaction(ctx, kgo.TransactionEndTry(try == 0)))
			}
			return done, err
		},
		consume: func(count int, protocol string) (int, error) {
			options := []kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
			if protocol != "" {
				options = append(options, kgo.ConsumerGroup(topic), kgo.DisableAutoCommit())
			}
			if protocol == "consumer" {
				options = append(options, kgo.WithContext(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)))
			}
			kafka, err := open(options...)
			if err != nil {
				return 0, err
			}
			seen := 0
			for seen < count && err == nil {
				fetches := kafka.PollFetches(ctx)
				seen += fetches.NumRecords()
				err = fetches.Err()
			}
			if protocol != "" {
				err = errors.Join(err, kafka.CommitUncommittedOffsets(ctx))
			}
			kafka.Close()
			return seen, err
		},
		steps: func() ([]step, error) {
			kafka, err := open()
			admin, made := kadm.NewClient(kafka), topic+"-made"
			return []step{
				{"create_topic", func() error { return only(admin.CreateTopic(ctx, 1, 1, nil, made)) }},
				{"list_topics", func() error { return only(admin.ListTopics(ctx)) }},
				{"describe_cluster", func() error { return only(admin.Metadata(ctx)) }},
				{"describe_configs", func() error { return only(admin.DescribeTopicConfigs(ctx, topic)) }},
				{"list_groups", func() error { return only(admin.ListGroups(ctx)) }},
				{"describe_group", func() error { return only(admin.DescribeGroups(ctx, topic)) }},
				{"offsets", func() error { return only(admin.FetchOffsets(ctx, topic)) }},
				{"end_offsets", func() error { return only(admin.ListEndOffsets(ctx, topic)) }},
				{"delete_group", func() error { return only(admin.DeleteGroup(ctx, topic)) }},
				{"describe_quotas", func() error { return only(admin.DescribeClientQuotas(ctx, false, nil)) }},
				{"delete_topic", func() error { return only(admin.DeleteTopic(ctx, made)) }},
			}, err
		},
	}
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = topic
	config.Version = sarama.V2_6_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 20
	config.Producer.Flush.Bytes, config.Producer.Flush.MaxMessages = batchBytes, 16
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func sendSarama(producer sarama.AsyncProducer, first, count int, pause time.Duration) int {
	go func() {
		for index := first; index < first+count; index++ {
			producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value(index))}
			time.Sleep(pause)
		}
	}()
	acknowledged := 0
	for range count {
		select {
		case <-producer.Successes():
			acknowledged++
		case <-producer.Errors():
		case <-ctx.Done():
			return acknowledged
		}
	}
	return acknowledged
}

// Reads as a member of the group until it has seen all.
type member struct {
	count int
	seen  atomic.Int64
	done  context.CancelFunc
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		if m.seen.Add(1) == int64(m.count) {
			session.Commit()
			m.done()
		}
	}
	return nil
}

func saramaClient() client {
	return client{
		produce: func(count int, pause time.Duration) (int, error) {
			producer, err := sarama.NewAsyncProducer(brokers, saramaConfig())
			if err != nil {
				return 0, err
			}
			return sendSarama(producer, 0, count, pause), nil
		},
		transaction: func(count int) (int, error) {
			config := saramaConfig()
			config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
			config.Producer.Transaction.ID = topic
			producer, err := sarama.NewAsyncProducer(brokers, config)
			if err != nil {
				return 0, err
			}
			err = producer.BeginTxn()
			done := sendSarama(producer, 0, count, 0)
			err = errors.Join(err, producer.CommitTxn(), producer.BeginTxn())
			sendSarama(producer, count, count, 0)
			return done, errors.Join(err, producer.AbortTxn())
		},
		consume: func(count int, protocol string) (int, error) {
			if protocol == "" {
				consumer, err := sarama.NewConsumer(brokers, saramaConfig())
				if err != nil {
					return 0, err
				}
				partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
				if err != nil {
					return 0, err
				}
				for seen := range count {
					select {
					case <-partition.Messages():
					case <-ctx.Done():
						return seen, ctx.Err()
					}
				}
				return count, nil
			}
			group, err := sarama.NewConsumerGroup(brokers, topic, saramaConfig())
			if err != nil {
				return 0, err
			}
			within, cancel := context.WithCancel(ctx)
			reader := &member{count: count, done: cancel}
			err = group.Consume(within, []string{topic}, reader)
			return int(reader.seen.Load()), errors.Join(err, group.Close())
		},
		steps: func() ([]step, error) {
			admin, err := sarama.NewClusterAdmin(brokers, saramaConfig())
			made := topic + "-made"
			resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}
			kind, anything := sarama.QuotaEntityClientID, sarama.QuotaMatchAny
			filter := []sarama.QuotaFilterComponent{{EntityType: kind, MatchType: anything}}
			one := []sarama.QuotaEntityComponent{{EntityType: kind, MatchType: sarama.QuotaMatchExact, Name: topic}}
			rate := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e9}
			return []step{
				{"create_topic", func() error {
					return admin.CreateTopic(made, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
				}},
				{"list_topics", func() error { return only(admin.ListTopics()) }},
				{"describe_cluster", func() error { _, _, err := admin.DescribeCluster(); return err }},
				{"describe_configs", func() error { return only(admin.DescribeConfig(resource)) }},
				{"list_groups", func() error { return only(admin.ListConsumerGroups()) }},
				{"describe_group", func() error { return only(admin.DescribeConsumerGroups([]string{topic})) }},
				{"offsets", func() error { return only(admin.ListConsumerGroupOffsets(topic, nil)) }},
				{"delete_group", func() error { return admin.DeleteConsumerGroup(topic) }},
				{"alter_quotas", func() error { return admin.AlterClientQuotas(one, rate, false) }},
				{"describe_quotas", func() error { return only(admin.DescribeClientQuotas(filter, false)) }},
				{"delete_topic", func() error { return admin.DeleteTopic(made) }},
			}, err
		},
	}
}

func kafkaGo() client {
	transport := &kafkago.Transport{ClientID: topic}
	return client{
		produce: func(count int, pause time.Duration) (int, error) {
			var acknowledged atomic.Int64
			var writing sync.WaitGroup
			writer := &kafkago.Writer{
				Addr: kafkago.TCP(brokers...), Topic: topic, Transport: transport, RequiredAcks: kafkago.RequireAll,
				BatchBytes: batchBytes, BatchTimeout: 5 * time.Millisecond, MaxAttempts: 20, Async: true,
				Completion: func(messages []kafkago.Message, err error) {
					if err == nil {
						acknowledged.Add(int64(len(messages)))
					}
					writing.Add(-len(messages))
				},
			}
			writing.Add(count)
			for index := range count {
				if err := writer.WriteMessages(ctx, kafkago.Message{Value: value(index)}); err != nil {
					return 0, err
				}
				time.Sleep(pause)
			}
			writing.Wait()
			return int(acknowledged.Load()), writer.Close()
		},
		consume: func(count int, protocol string) (int, error) {
			config := kafkago.ReaderConfig{
				Brokers: brokers, Topic: topic, StartOffset: kafkago.FirstOffset,
				Dialer: &kafkago.Dialer{ClientID: topic, Timeout: 10 * time.Second},
			}
			if protocol != "" {
				config.GroupID = topic
			}
			reader := kafkago.NewReader(config)
			for seen := range count {
				message, err := reader.FetchMessage(ctx)
				if err != nil {
					return seen, err
				}
				if protocol != "" {
					if err := reader.CommitMessages(ctx, message); err != nil {
						return seen, err
					}
				}
			}
			return count, reader.Close()
		},
		steps: func() ([]step, error) {
			admin, made := &kafkago.Client{Addr: kafkago.TCP(brokers...), Transport: transport}, topic+"-made"
			topics := []kafkago.TopicConfig{{Topic: made, NumPartitions: 1, ReplicationFactor: 1}}
			resources := []kafkago.DescribeConfigRequestResource{{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic}}
			filter := []kafkago.DescribeClientQuotasRequestComponent{{EntityType: "client-id", MatchType: 2}}
			return []step{
				{"create_topic", func() error { return only(admin.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: topics})) }},
				{"list_topics", func() error { return only(admin.Metadata(ctx, &kafkago.MetadataRequest{})) }},
				{"describe_configs", func() error {
					return only(admin.DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{Resources: resources}))
				}},
				{"list_groups", func() error { return only(admin.ListGroups(ctx, &kafkago.ListGroupsRequest{})) }},
				{"describe_group", func() error {
					return only(admin.DescribeGroups(ctx, &kafkago.DescribeGroupsRequest{GroupIDs: []string{topic}}))
				}},
				{"offsets", func() error { return only(admin.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: topic})) }},
				{"delete_group", func() error {
					return only(admin.DeleteGroups(ctx, &kafkago.DeleteGroupsRequest{GroupIDs: []string{topic}}))
				}},
				{"describe_quotas", func() error {
					return only(admin.DescribeClientQuotas(ctx, &kafkago.DescribeClientQuotasRequest{Components: filter}))
				}},
				{"delete_topic", func() error {
					return only(admin.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{made}}))
				}},
			}, nil
		},
	}
}

func main() {
	brokers, topic = strings.Split(os.Args[1], ","), os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])
	kafka := map[string]func() client{"franz-go": franz, "Sarama": saramaClient, "kafka-go": kafkaGo}[os.Args[5]]()
	begin, said := time.Now(), map[string]any{}
	var records int
	var err error
	switch os.Args[2] {
	case "produce", "quota":
		records, err = kafka.produce(count, 0)
	case "leader":
		records, err = kafka.produce(count, 10*time.Millisecond)
	case "transaction":
		records, err = kafka.transaction(count)
	case "admin":
		var steps []step
		steps, err = kafka.steps()
		outcomes := map[string]string{}
		for _, each := range steps {
			outcomes[each.name] = name(each.call())
			time.Sleep(500 * time.Millisecond) // a topic is made on all brokers a moment later
		}
		said["steps"] = outcomes
	default:
		records, err = kafka.consume(count, map[string]string{"group": "classic", "group848": "consumer"}[os.Args[2]])
	}
	if os.Args[2] != "admin" {
		said["records"], said["seconds"] = records, time.Since(begin).Seconds()
	}
	if err != nil {
		said["error"] = name(err)
	}
	line, _ := json.Marshal(said)
	fmt.Println(string(line))
}
