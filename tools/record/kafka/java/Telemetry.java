import java.util.*;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.server.telemetry.*;

/** Runs in the broker: without a receiver of telemetry (KIP-714) it does not offer the two APIs. */
public class Telemetry implements MetricsReporter, ClientTelemetry {
    @Override public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> System.out.println("telemetry: " + payload.data().remaining() + " bytes");
    }
    @Override public void configure(Map<String, ?> configs) { }
    @Override public void init(List<KafkaMetric> metrics) { }
    @Override public void metricChange(KafkaMetric metric) { }
    @Override public void metricRemoval(KafkaMetric metric) { }
    @Override public void close() { }
}
