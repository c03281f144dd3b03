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

const batchBytes, batchRecords = 16384, 16

var (
	brokers     []string
	topic, made string
	ctx, _      = context.WithTimeout(context.Background(), 60*time.Second)
)

type step struct {
	name string
	call func() error
}

// A client has what the scenarios ask for; a call that it lacks is nil. Errors are panics.
type client struct {
	produce     func(count int, pause time.Duration) int
	consume     func(count int, protocol string) int
	transaction func(count int) int
	steps       func() []step
}

func value(index int) []byte { return []byte(fmt.Sprintf("%01000d", index)) }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](found T, err error) T {
	check(err)
	return found
}

func only[T any](_ T, err error) error { return err }

func name(err error) string {
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Message
	}
	return reflect.TypeOf(err).String()
}

func franz() client {
	open := func(more ...kgo.Opt) *kgo.Client {
		uncompressed := kgo.ProducerBatchCompression(kgo.NoCompression())
		batches := kgo.ProducerBatchMaxBytes(batchBytes)
		return must(kgo.NewClient(append(more, kgo.SeedBrokers(brokers...), kgo.ClientID(topic), batches, uncompressed)...))
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
		check(kafka.Flush(ctx))
		return int(acknowledged.Load())
	}
	return client{
		produce: func(count int, pause time.Duration) int { return send(open(), 0, count, pause) },
		transaction: func(count int) int {
			kafka := open(kgo.TransactionalID(topic))
			check(kafka.BeginTransaction())
			done := send(kafka, 0, count, 0)
			check(kafka.EndTransaction(ctx, kgo.TryCommit))
			check(kafka.BeginTransaction())
			send(kafka, count, count, 0)
			check(kafka.EndTransaction(ctx, kgo.TryAbort))
			return done
		},
		consume: func(count int, protocol string) int {
			options := []kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
			if protocol != "" {
				options = append(options, kgo.ConsumerGroup(topic), kgo.DisableAutoCommit())
			}
			if protocol == "consumer" {
				options = append(options, kgo.WithContext(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)))
			}
			kafka, seen := open(options...), 0
			for seen < count {
				fetches := kafka.PollFetches(ctx)
				check(fetches.Err())
				seen += fetches.NumRecords()
			}
			if protocol != "" {
				check(kafka.CommitUncommittedOffsets(ctx))
			}
			kafka.Close()
			return seen
		},
		steps: func() []step {
			admin := kadm.NewClient(open())
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
			}
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
	config.Producer.Flush.Frequency, config.Producer.Flush.MaxMessages = 5*time.Millisecond, batchRecords
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func sendSarama(producer sarama.AsyncProducer, first, count int, pause time.Duration) (acknowledged int) {
	go func() {
		for index := first; index < first+count; index++ {
			producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value(index))}
			time.Sleep(pause)
		}
	}()
	for range count {
		select {
		case <-producer.Successes():
			acknowledged++
		case <-producer.Errors():
		case <-ctx.Done():
			return
		}
	}
	return
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
		produce: func(count int, pause time.Duration) int {
			return sendSarama(must(sarama.NewAsyncProducer(brokers, saramaConfig())), 0, count, pause)
		},
		transaction: func(count int) int {
			config := saramaConfig()
			config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
			config.Producer.Transaction.ID = topic
			producer := must(sarama.NewAsyncProducer(brokers, config))
			check(producer.BeginTxn())
			done := sendSarama(producer, 0, count, 0)
			check(producer.CommitTxn())
			check(producer.BeginTxn())
			sendSarama(producer, count, count, 0)
			check(producer.AbortTxn())
			return done
		},
		consume: func(count int, protocol string) (seen int) {
			if protocol == "" {
				consumer := must(sarama.NewConsumer(brokers, saramaConfig()))
				partition := must(consumer.ConsumePartition(topic, 0, sarama.OffsetOldest))
				for ; seen < count; seen++ {
					select {
					case <-partition.Messages():
					case <-ctx.Done():
						return
					}
				}
				return
			}
			group := must(sarama.NewConsumerGroup(brokers, topic, saramaConfig()))
			within, cancel := context.WithCancel(ctx)
			reader := &member{count: count, done: cancel}
			check(group.Consume(within, []string{topic}, reader))
			check(group.Close())
			return int(reader.seen.Load())
		},
		steps: func() []step {
			admin := must(sarama.NewClusterAdmin(brokers, saramaConfig()))
			resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}
			kind := sarama.QuotaEntityClientID
			filter := []sarama.QuotaFilterComponent{{EntityType: kind, MatchType: sarama.QuotaMatchAny}}
			one := []sarama.QuotaEntityComponent{{EntityType: kind, MatchType: sarama.QuotaMatchExact, Name: topic}}
			rate := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e9}
			wanted := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
			return []step{
				{"create_topic", func() error { return admin.CreateTopic(made, wanted, false) }},
				{"list_topics", func() error { return only(admin.ListTopics()) }},
				{"describe_configs", func() error { return only(admin.DescribeConfig(resource)) }},
				{"list_groups", func() error { return only(admin.ListConsumerGroups()) }},
				{"describe_group", func() error { return only(admin.DescribeConsumerGroups([]string{topic})) }},
				{"offsets", func() error { return only(admin.ListConsumerGroupOffsets(topic, nil)) }},
				{"delete_group", func() error { return admin.DeleteConsumerGroup(topic) }},
				{"alter_quotas", func() error { return admin.AlterClientQuotas(one, rate, false) }},
				{"describe_quotas", func() error { return only(admin.DescribeClientQuotas(filter, false)) }},
				{"delete_topic", func() error { return admin.DeleteTopic(made) }},
			}
		},
	}
}

func kafkaGo() client {
	transport := &kafkago.Transport{ClientID: topic}
	return client{
		produce: func(count int, pause time.Duration) int {
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
				check(writer.WriteMessages(ctx, kafkago.Message{Value: value(index)}))
				time.Sleep(pause)
			}
			writing.Wait()
			return int(acknowledged.Load())
		},
		consume: func(count int, protocol string) int {
			dialer := &kafkago.Dialer{ClientID: topic, Timeout: 10 * time.Second}
			config := kafkago.ReaderConfig{Brokers: brokers, Topic: topic, StartOffset: kafkago.FirstOffset, Dialer: dialer}
			if protocol != "" {
				config.GroupID = topic
			}
			reader := kafkago.NewReader(config)
			for range count {
				message := must(reader.FetchMessage(ctx))
				if protocol != "" {
					check(reader.CommitMessages(ctx, message))
				}
			}
			return count
		},
		steps: func() []step {
			admin, one := &kafkago.Client{Addr: kafkago.TCP(brokers...), Transport: transport}, []string{topic}
			wanted := &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{Topic: made, NumPartitions: 1, ReplicationFactor: 1}}}
			resource := kafkago.DescribeConfigRequestResource{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic}
			configs := &kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{resource}}
			return []step{
				{"create_topic", func() error { return only(admin.CreateTopics(ctx, wanted)) }},
				{"list_topics", func() error { return only(admin.Metadata(ctx, &kafkago.MetadataRequest{})) }},
				{"describe_configs", func() error { return only(admin.DescribeConfigs(ctx, configs)) }},
				{"list_groups", func() error { return only(admin.ListGroups(ctx, &kafkago.ListGroupsRequest{})) }},
				{"describe_group", func() error { return only(admin.DescribeGroups(ctx, &kafkago.DescribeGroupsRequest{GroupIDs: one})) }},
				{"offsets", func() error { return only(admin.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: topic})) }},
				{"delete_group", func() error { return only(admin.DeleteGroups(ctx, &kafkago.DeleteGroupsRequest{GroupIDs: one})) }},
				{"delete_topic", func() error { return only(admin.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{made}})) }},
			}
		},
	}
}

func outcomes(steps []step) map[string]string {
	said := map[string]string{}
	for _, each := range steps {
		said[each.name] = "ok"
		if err := each.call(); err != nil {
			said[each.name] = name(err)
		}
		time.Sleep(500 * time.Millisecond) // a topic is made on all brokers a moment later
	}
	return said
}

func main() {
	brokers, topic, made = strings.Split(os.Args[1], ","), os.Args[3], os.Args[3]+"-made"
	count := must(strconv.Atoi(os.Args[4]))
	begin, said := time.Now(), map[string]any{}
	defer func() {
		if err := recover(); err != nil {
			said["error"] = name(err.(error))
		}
		said["seconds"] = time.Since(begin).Seconds()
		fmt.Println(string(must(json.Marshal(said))))
	}()
	kafka := map[string]func() client{"franz-go": franz, "Sarama": saramaClient, "kafka-go": kafkaGo}[os.Args[5]]()
	switch os.Args[2] {
	case "produce", "quota":
		said["records"] = kafka.produce(count, 0)
	case "leader":
		said["records"] = kafka.produce(count, 10*time.Millisecond)
	case "transaction":
		said["records"] = kafka.transaction(count)
	case "admin":
		said["steps"] = outcomes(kafka.steps())
	default:
		said["records"] = kafka.consume(count, map[string]string{"group": "classic", "group848": "consumer"}[os.Args[2]])
	}
}
