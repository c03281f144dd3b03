// Go's clients: `client bootstrap scenario topic count library`. Errors are panics.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const aRequest = 16

var (
	brokers               []string
	scenario, topic, made string
	ctx, _                = context.WithTimeout(context.Background(), 60*time.Second)
)

// What a client lacks is nil.
type client struct {
	writer     func() writer
	read       func(count int)
	administer func(say func(string, error))
}

type writer struct {
	write                func(values [][]byte) error
	begin, commit, abort func() error
}

func must[T any](found T, err error) T {
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func only[T any](_ T, err error) error { return err }

func name(err error) string {
	var code *kerr.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &code):
		return code.Message
	}
	return fmt.Sprintf("%T", err)
}

func franz() client {
	open := func(more ...kgo.Opt) *kgo.Client {
		uncompressed := kgo.ProducerBatchCompression(kgo.NoCompression())
		return must(kgo.NewClient(append(more, kgo.SeedBrokers(brokers...), kgo.ClientID(topic), uncompressed)...))
	}
	return client{
		writer: func() writer {
			options := map[string][]kgo.Opt{"transaction": {kgo.TransactionalID(topic)}}
			kafka := open(options[scenario]...)
			record := func(value []byte) *kgo.Record { return &kgo.Record{Topic: topic, Value: value} }
			write := func(values [][]byte) error { return kafka.ProduceSync(ctx, each(values, record)...).FirstErr() }
			commit := func() error { return kafka.EndTransaction(ctx, kgo.TryCommit) }
			return writer{write, kafka.BeginTransaction, commit, func() error { return kafka.EndTransaction(ctx, kgo.TryAbort) }}
		},
		read: func(count int) {
			member := []kgo.Opt{kgo.ConsumerGroup(topic), kgo.DisableAutoCommit()}
			newer := kgo.WithContext(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true))
			options := map[string][]kgo.Opt{"consume": nil, "group": member, "group848": append(member, newer)}[scenario]
			kafka := open(append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
			for seen := 0; seen < count; {
				fetches := kafka.PollFetches(ctx)
				check(fetches.Err())
				seen += fetches.NumRecords()
			}
			if scenario != "consume" {
				check(kafka.CommitUncommittedOffsets(ctx))
			}
			kafka.Close()
		},
		administer: func(say func(string, error)) {
			admin := kadm.NewClient(open())
			say("create_topic", only(admin.CreateTopic(ctx, 1, 1, nil, made)))
			say("list_topics", only(admin.ListTopics(ctx)))
			say("describe_cluster", only(admin.Metadata(ctx)))
			say("describe_configs", only(admin.DescribeTopicConfigs(ctx, topic)))
			say("list_groups", only(admin.ListGroups(ctx)))
			say("describe_group", only(admin.DescribeGroups(ctx, topic)))
			say("offsets", only(admin.FetchOffsets(ctx, topic)))
			say("end_offsets", only(admin.ListEndOffsets(ctx, topic)))
			say("delete_group", only(admin.DeleteGroup(ctx, topic)))
			say("describe_quotas", only(admin.DescribeClientQuotas(ctx, false, nil)))
			say("delete_topic", only(admin.DeleteTopic(ctx, made)))
		},
	}
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
	config := sarama.NewConfig()
	config.ClientID, config.Version = topic, sarama.V2_6_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes, config.Producer.Retry.Max = true, 20
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return client{
		writer: func() writer {
			if scenario == "transaction" {
				config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
				config.Producer.Transaction.ID = topic
			}
			producer := must(sarama.NewSyncProducer(brokers, config))
			message := func(value []byte) *sarama.ProducerMessage {
				return &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value)}
			}
			write := func(values [][]byte) error { return producer.SendMessages(each(values, message)) }
			return writer{write, producer.BeginTxn, producer.CommitTxn, producer.AbortTxn}
		},
		read: func(count int) {
			if scenario == "consume" {
				partition := must(must(sarama.NewConsumer(brokers, config)).ConsumePartition(topic, 0, sarama.OffsetOldest))
				for range count {
					<-partition.Messages()
				}
				return
			}
			members := must(sarama.NewConsumerGroup(brokers, topic, config))
			within, cancel := context.WithCancel(ctx)
			check(members.Consume(within, []string{topic}, &member{count: count, done: cancel}))
			check(members.Close())
			check(ctx.Err())
		},
		administer: func(say func(string, error)) {
			admin := must(sarama.NewClusterAdmin(brokers, config))
			resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}
			kind := sarama.QuotaEntityClientID
			filter := []sarama.QuotaFilterComponent{{EntityType: kind, MatchType: sarama.QuotaMatchAny}}
			one := []sarama.QuotaEntityComponent{{EntityType: kind, MatchType: sarama.QuotaMatchExact, Name: topic}}
			rate := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e9}
			wanted := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
			say("create_topic", admin.CreateTopic(made, wanted, false))
			say("list_topics", only(admin.ListTopics()))
			say("describe_configs", only(admin.DescribeConfig(resource)))
			say("list_groups", only(admin.ListConsumerGroups()))
			say("describe_group", only(admin.DescribeConsumerGroups([]string{topic})))
			say("offsets", only(admin.ListConsumerGroupOffsets(topic, nil)))
			say("delete_group", admin.DeleteConsumerGroup(topic))
			say("alter_quotas", admin.AlterClientQuotas(one, rate, false))
			say("describe_quotas", only(admin.DescribeClientQuotas(filter, false)))
			say("delete_topic", admin.DeleteTopic(made))
		},
	}
}

func kafkaGo() client {
	address, transport := kafkago.TCP(brokers...), &kafkago.Transport{ClientID: topic}
	return client{
		writer: func() writer {
			producer := &kafkago.Writer{Addr: address, Topic: topic, Transport: transport, RequiredAcks: kafkago.RequireAll,
				BatchSize: aRequest, BatchTimeout: 5 * time.Millisecond, MaxAttempts: 20}
			message := func(value []byte) kafkago.Message { return kafkago.Message{Value: value} }
			return writer{write: func(values [][]byte) error { return producer.WriteMessages(ctx, each(values, message)...) }}
		},
		read: func(count int) {
			dialer := &kafkago.Dialer{ClientID: topic, Timeout: 10 * time.Second}
			config := kafkago.ReaderConfig{Brokers: brokers, Topic: topic, StartOffset: kafkago.FirstOffset, Dialer: dialer}
			if scenario == "group" {
				config.GroupID = topic
			}
			reader := kafkago.NewReader(config)
			for range count {
				message := must(reader.FetchMessage(ctx))
				if scenario == "group" {
					check(reader.CommitMessages(ctx, message))
				}
			}
		},
		administer: func(say func(string, error)) {
			admin, one := &kafkago.Client{Addr: address, Transport: transport}, []string{topic}
			wanted := []kafkago.TopicConfig{{Topic: made, NumPartitions: 1, ReplicationFactor: 1}}
			configs := []kafkago.DescribeConfigRequestResource{{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic}}
			say("create_topic", only(admin.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: wanted})))
			say("list_topics", only(admin.Metadata(ctx, &kafkago.MetadataRequest{})))
			say("describe_configs", only(admin.DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{Resources: configs})))
			say("list_groups", only(admin.ListGroups(ctx, &kafkago.ListGroupsRequest{})))
			say("describe_group", only(admin.DescribeGroups(ctx, &kafkago.DescribeGroupsRequest{GroupIDs: one})))
			say("offsets", only(admin.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: topic})))
			say("delete_group", only(admin.DeleteGroups(ctx, &kafkago.DeleteGroupsRequest{GroupIDs: one})))
			say("delete_topic", only(admin.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{made}})))
		},
	}
}

func each[T any](values [][]byte, of func([]byte) T) (made []T) {
	for _, value := range values {
		made = append(made, of(value))
	}
	return
}

func send(to writer, first, end int) {
	for ; first < end; first += aRequest {
		var values [][]byte
		for index := range min(aRequest, end-first) {
			values = append(values, []byte(fmt.Sprintf("%01000d", first+index)))
		}
		check(to.write(values))
	}
}

func main() {
	brokers, scenario, topic, made = strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[3]+"-made"
	count := must(strconv.Atoi(os.Args[4]))
	said := map[string]any{"records": count}
	defer func() {
		if err := recover(); err != nil {
			said = map[string]any{"error": name(err.(error))}
		}
		fmt.Println(string(must(json.Marshal(said))))
	}()
	kafka := map[string]func() client{"franz-go": franz, "Sarama": saramaClient, "kafka-go": kafkaGo}[os.Args[5]]()
	switch scenario {
	case "produce":
		send(kafka.writer(), 0, count)
	case "transaction":
		to := kafka.writer()
		check(to.begin())
		send(to, 0, count)
		check(to.commit())
		check(to.begin())
		send(to, count, 2*count)
		check(to.abort())
	case "admin":
		outcomes := map[string]string{}
		kafka.administer(func(step string, err error) { outcomes[step] = name(err) })
		said = map[string]any{"steps": outcomes}
	default:
		kafka.read(count)
	}
}
