/* npm run test:sanity -- --csi-sanity PATH --driver PATH: runs csi-sanity on a driver, then through
 * the gateway, and compares the results. */
import { build, install, runCompiled } from './setup.mjs';

install();
build();
runCompiled('test/sanity/main.js');
