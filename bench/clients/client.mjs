// KafkaJS: `client.mjs bootstrap scenario topic count library`.
import kafkajs from 'kafkajs'

const { ConfigResourceTypes, Kafka, logLevel } = kafkajs
const [bootstrap, scenario, topic, words] = process.argv.slice(2)
const count = Number(words)
const A_REQUEST = 16
const settings = { clientId: topic, logLevel: logLevel.NOTHING, retry: { retries: 20 } }
const kafka = new Kafka({ brokers: bootstrap.split(','), ...settings })
const value = (index) => String(index).padStart(1000, '0')

async function send (producer, first) {
  for (let index = first; index < first + count; index += A_REQUEST) {
    const size = Math.min(A_REQUEST, first + count - index)
    const messages = Array.from({ length: size }, (_, further) => ({ value: value(index + further) }))
    await producer.send({ topic, acks: -1, messages })
  }
  return count
}

async function produce () {
  const producer = kafka.producer(scenario === 'transaction' ? { transactionalId: topic, idempotent: true } : {})
  await producer.connect()
  if (scenario === 'produce') return send(producer, 0)
  const first = await producer.transaction()
  await send(first, 0)
  await first.commit()
  const second = await producer.transaction()
  await send(second, count)
  await second.abort()
  return count
}

async function group () {
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let seen = 0
  await new Promise((resolve) => {
    setTimeout(resolve, 60_000)
    consumer.run({ eachMessage: async () => { if (++seen === count) resolve() } })
  })
  await consumer.disconnect() // commits
  return seen
}

async function admin () {
  const administrator = kafka.admin()
  await administrator.connect()
  const [made, resource] = [`${topic}-made`, { type: ConfigResourceTypes.TOPIC, name: topic }]
  const calls = {
    create_topic: () => administrator.createTopics({ topics: [{ topic: made }], waitForLeaders: false }),
    list_topics: () => administrator.listTopics(),
    describe_cluster: () => administrator.describeCluster(),
    describe_configs: () => administrator.describeConfigs({ resources: [resource], includeSynonyms: false }),
    list_groups: () => administrator.listGroups(),
    describe_group: () => administrator.describeGroups([topic]),
    offsets: () => administrator.fetchOffsets({ groupId: topic, topics: [topic] }),
    end_offsets: () => administrator.fetchTopicOffsets(topic),
    delete_group: () => administrator.deleteGroups([topic]),
    delete_topic: () => administrator.deleteTopics({ topics: [made] }),
  }
  const steps = {}
  for (const [name, call] of Object.entries(calls)) {
    steps[name] = await call().then(() => 'ok', (error) => error.type ?? error.name)
  }
  return steps
}

try {
  const done = await { produce, transaction: produce, group, admin }[scenario]()
  console.log(JSON.stringify({ [scenario === 'admin' ? 'steps' : 'records']: done }))
} catch (error) {
  console.log(JSON.stringify({ error: error.type ?? error.name }))
}
process.exit(0)
