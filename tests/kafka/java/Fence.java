import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.BrokerHeartbeatRequest;
import org.apache.kafka.common.requests.BrokerHeartbeatResponse;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * Raises the leader epochs of a cluster of one node in a second, without a restart: a heartbeat in the
 * broker's name asks the controller to fence it, and the broker's own next heartbeat undoes that. Each
 * partition loses its leader and gets it back, one epoch for either.
 */
final class Fence {
    private static final int BROKER = 1;

    private final String controller;
    private final Admin admin;
    private final long brokerEpoch;
    private int correlation;

    Fence(String controller, Admin admin, long brokerEpoch) {
        this.controller = controller;
        this.admin = admin;
        this.brokerEpoch = brokerEpoch;
    }

    /** Returns when every partition of the topic has a leader again. */
    void raiseLeaderEpochs(String topic) throws Exception {
        heartbeat();
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!led(topic)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(topic + " has had no leader for 30 s");
            }
            Thread.sleep(20);
        }
    }

    private boolean led(String topic) throws Exception {
        TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        for (TopicPartitionInfo partition : description.partitions()) {
            if (partition.leader() == null || partition.leader().isEmpty()) {
                return false;
            }
        }
        return true;
    }

    private void heartbeat() throws Exception {
        short version = 1;
        BrokerHeartbeatRequest request = new BrokerHeartbeatRequest.Builder(new BrokerHeartbeatRequestData()
            .setBrokerId(BROKER).setBrokerEpoch(brokerEpoch).setCurrentMetadataOffset(Long.MAX_VALUE)
            .setWantFence(true)).build(version);
        String[] address = controller.split(":");
        try (Socket socket = new Socket(address[0], Integer.parseInt(address[1]))) {
            RequestHeader header = new RequestHeader(ApiKeys.BROKER_HEARTBEAT, version, "fence", ++correlation);
            ByteBuffer frame = request.serializeWithHeader(header);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            out.writeInt(frame.remaining());
            out.write(frame.array(), frame.arrayOffset() + frame.position(), frame.remaining());
            out.flush();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            BrokerHeartbeatResponse response = (BrokerHeartbeatResponse)
                BrokerHeartbeatResponse.parseResponse(ByteBuffer.wrap(answer), header);
            if (response.data().errorCode() != 0 || !response.data().isFenced()) {
                throw new IllegalStateException("the controller did not fence the broker: " + response.data());
            }
        }
    }
}
