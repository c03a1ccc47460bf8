/* npm run bench:gateway: compares calls through the gateway with calls on the driver's socket.
 * `npm run bench:gateway -- --help` lists its flags. */
import { build, install, runCompiled } from './setup.mjs';

install();
build();
runCompiled('bench/gateway.js');
