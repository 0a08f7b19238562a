import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.BrokerHeartbeatRequest;
import org.apache.kafka.common.requests.BrokerHeartbeatResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * Raises the leader epochs of a cluster of one node in a second, without a restart: a heartbeat in the
 * broker's name asks the controller to fence it, and the broker's own next heartbeat undoes that. Each
 * partition loses its leader and gets it back, one epoch for either.
 */
final class Fence {
    private static final int BROKER = 1;
    private static final short HEARTBEAT_VERSION = 1;
    private static final short METADATA_VERSION = 12;

    private final String broker;
    private final String controller;
    private final long brokerEpoch;
    private int correlation;

    Fence(String broker, String controller, long brokerEpoch) {
        this.broker = broker;
        this.controller = controller;
        this.brokerEpoch = brokerEpoch;
    }

    /** Returns when every partition of the topic has a leader of a newer epoch. */
    void raiseLeaderEpochs(String topic) throws Exception {
        int before = oldestLeaderEpoch(topic);
        heartbeat();
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (oldestLeaderEpoch(topic) < before + 2) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(topic + " has had no new leader for 60 s");
            }
            Thread.sleep(20);
        }
    }

    /** The lowest leader epoch of a topic's partitions as the broker tells it; -1 while one has no leader. */
    private int oldestLeaderEpoch(String topic) throws Exception {
        MetadataResponse response = (MetadataResponse)
            ask(broker, MetadataRequest.Builder.forTopicNames(List.of(topic), false).build(METADATA_VERSION));
        int oldest = Integer.MAX_VALUE;
        for (MetadataResponse.TopicMetadata one : response.topicMetadata()) {
            for (MetadataResponse.PartitionMetadata partition : one.partitionMetadata()) {
                if (partition.leaderId.isEmpty() || partition.leaderEpoch.isEmpty()) {
                    return -1;
                }
                oldest = Math.min(oldest, partition.leaderEpoch.get());
            }
        }
        return oldest;
    }

    private void heartbeat() throws Exception {
        BrokerHeartbeatRequest request = new BrokerHeartbeatRequest.Builder(new BrokerHeartbeatRequestData()
            .setBrokerId(BROKER).setBrokerEpoch(brokerEpoch).setCurrentMetadataOffset(Long.MAX_VALUE)
            .setWantFence(true)).build(HEARTBEAT_VERSION);
        BrokerHeartbeatResponse response = (BrokerHeartbeatResponse) ask(controller, request);
        if (response.data().errorCode() != 0 || !response.data().isFenced()) {
            throw new IllegalStateException("the controller did not fence the broker: " + response.data());
        }
    }

    private AbstractResponse ask(String node, AbstractRequest request) throws Exception {
        String[] address = node.split(":");
        try (Socket socket = new Socket(address[0], Integer.parseInt(address[1]))) {
            RequestHeader header = new RequestHeader(request.apiKey(), request.version(), "fence", ++correlation);
            ByteBuffer frame = request.serializeWithHeader(header);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            out.writeInt(frame.remaining());
            out.write(frame.array(), frame.arrayOffset() + frame.position(), frame.remaining());
            out.flush();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
        }
    }
}
