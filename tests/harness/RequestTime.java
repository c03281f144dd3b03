import java.util.TreeSet;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints, for each line that it reads, what the broker says of request time: a line of client-id, tab, percent for each
 * client-id that it knows, then an empty line. Its one argument is the port of JMX. */
public class RequestTime {
    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        MBeanServerConnection broker = JMXConnectorFactory.connect(new JMXServiceURL(url)).getMBeanServerConnection();
        ObjectName pattern = new ObjectName("kafka.server:type=Request,*");
        while (System.in.read() == '\n') {
            for (ObjectName name : new TreeSet<>(broker.queryNames(pattern, null))) {
                String clientId = name.getKeyProperty("client-id");
                if (clientId != null) {
                    System.out.println(clientId + "\t" + broker.getAttribute(name, "request-time"));
                }
            }
            System.out.println();
        }
    }
}
