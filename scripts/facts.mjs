/* npm run facts: prints each fact that a test proves, with the file of the test, by who can see the
 * fact. Declares the tests without running them, so that a table of cases is one fact a case. Ends
 * with 1 if two tests have the same title: a fact is proven in one place. */
import { register } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build, compiledTests, install, testFiles } from './setup.mjs';
import { titles } from './titles.mjs';

/** Who can see a fact, by the folder of its test. */
const READERS = {
  'who creates claims and pods': 'explain hints migration real topology volumes',
  'who runs the cluster':
    'all audit capacity change-over chaos dashboard driver-config e2e election k8s long operator ' +
    'packages redis-faults runtime sandbox',
  'API servers, drivers and senders of webhooks':
    'conformance csi csi-gateway driver gateway-client gateway-scenarios ingest jobs kube sanity ' +
    'webhooks',
};
/** Other folders. */
const DEVELOPERS = 'who changes sutler';

/** Tests on a real control plane are declared if there are paths to programs. None is started. */
process.env.KUBECONFIG ??= 'kubeconfig';
process.env.EXTERNAL_PROVISIONER ??= 'csi-provisioner';

install();
build();
const standIn = JSON.stringify(new URL('titles.mjs', import.meta.url));
const resolve = `export const resolve = (name, context, next) =>
  name === 'node:test' ? { url: ${standIn}, shortCircuit: true } : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(resolve)}`);

const facts = new Map([...Object.keys(READERS), DEVELOPERS].map((reader) => [reader, []]));
const files = new Map();
const repeated = [];
for (const path of testFiles()) {
  await import(pathToFileURL(join(compiledTests, path)).href);
  const [folder] = path.split('/');
  const isSeenBy = (reader) => READERS[reader].split(' ').includes(folder);
  const reader = Object.keys(READERS).find(isSeenBy) ?? DEVELOPERS;
  const file = `test/${path.replace(/\.js$/, '.ts')}`;
  for (const title of titles.splice(0)) {
    facts.get(reader).push(`- ${title} (${file})`);
    if (files.has(title)) repeated.push(`${title} (${files.get(title)}, ${file})`);
    files.set(title, file);
  }
}
for (const fact of repeated) process.stderr.write(`proven twice: ${fact}\n`);
const page = [...facts].map(
  ([reader, lines]) => `\n# For ${reader}: ${lines.length} facts\n${lines.join('\n')}\n`,
);
// Some test files open a server when they are loaded: the process would not end by itself.
process.stdout.write(page.join(''), () => process.exit(repeated.length === 0 ? 0 : 1));
