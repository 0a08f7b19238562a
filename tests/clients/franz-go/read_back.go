// Command read_back reads topics by partition from their beginnings to their ends with franz-go, and prints what
// tests/kafka/java/ReadBack.java prints: a line for each record (topic, partition, offset, value), then one for each
// partition with the position where the reader stands.
//
// Arguments: BOOTSTRAP ISOLATION_LEVEL TOPIC...
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type partition struct {
	topic string
	index int32
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("arguments: BOOTSTRAP ISOLATION_LEVEL TOPIC...")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	bootstrap, level, topics := os.Args[1], os.Args[2], os.Args[3:]
	isolation := kgo.ReadUncommitted()
	if level == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	asking, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		log.Fatal(err)
	}
	defer asking.Close()
	ends, err := endsOf(ctx, asking, topics)
	if err != nil {
		log.Fatal(err)
	}
	begin := map[string]map[int32]kgo.Offset{}
	for at := range ends {
		if begin[at.topic] == nil {
			begin[at.topic] = map[int32]kgo.Offset{}
		}
		begin[at.topic][at.index] = kgo.NewOffset().AtStart()
	}
	// Control records tell how far a reader is whose partition ends with them.
	reader, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.FetchIsolationLevel(isolation),
		kgo.ConsumePartitions(begin), kgo.KeepControlRecords())
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	positions := map[partition]int64{}
	for behind(positions, ends) {
		fetches := reader.PollFetches(ctx)
		for _, failure := range fetches.Errors() {
			log.Fatalf("%s-%d: %v", failure.Topic, failure.Partition, failure.Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			positions[partition{record.Topic, record.Partition}] = record.Offset + 1
			if !record.Attrs.IsControl() {
				fmt.Fprintf(out, "%s %d %d %s\n", record.Topic, record.Partition, record.Offset, record.Value)
			}
		})
	}
	for _, at := range sorted(ends) {
		fmt.Fprintf(out, "end %s %d %d\n", at.topic, at.index, positions[at])
	}
}

func behind(positions, ends map[partition]int64) bool {
	for at, end := range ends {
		if positions[at] < end {
			return true
		}
	}
	return false
}

func sorted(ends map[partition]int64) []partition {
	all := make([]partition, 0, len(ends))
	for at := range ends {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b partition) int {
		if a.topic != b.topic {
			if a.topic < b.topic {
				return -1
			}
			return 1
		}
		return int(a.index - b.index)
	})
	return all
}

// endsOf asks for the high watermarks.
func endsOf(ctx context.Context, client *kgo.Client, topics []string) (map[partition]int64, error) {
	metadata := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = kmsg.StringPtr(topic)
		metadata.Topics = append(metadata.Topics, asked)
	}
	found, err := metadata.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.ReplicaID = -1
	for _, topic := range found.Topics {
		asked := kmsg.NewListOffsetsRequestTopic()
		asked.Topic = *topic.Topic
		for _, one := range topic.Partitions {
			end := kmsg.NewListOffsetsRequestTopicPartition()
			end.Partition, end.Timestamp = one.Partition, -1
			asked.Partitions = append(asked.Partitions, end)
		}
		offsets.Topics = append(offsets.Topics, asked)
	}
	answer, err := offsets.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	ends := map[partition]int64{}
	for _, topic := range answer.Topics {
		for _, one := range topic.Partitions {
			if one.ErrorCode != 0 {
				return nil, fmt.Errorf("%s-%d: error %d", topic.Topic, one.Partition, one.ErrorCode)
			}
			ends[partition{topic.Topic, one.Partition}] = one.Offset
		}
	}
	return ends, nil
}
