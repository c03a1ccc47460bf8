import type { Redis } from 'ioredis';
import { leaseRecord } from '../../election/kube-lease-store.ts';
import { holderOf, leaseName, type Observation, observe } from '../../election/lease.ts';
import type { DriverInfo } from '../../gateway-client/driver-watch.ts';
import { openDriver } from '../../gateway-client/open-driver.ts';
import { type KubeClient, listAll } from '../../kube/client.ts';
import { isForbidden } from '../../kube/kube-error.ts';
import type { Lease } from '../../kube/objects.ts';
import {
  accessReviews,
  apiVersionOf,
  csiDrivers,
  deployments,
  leases,
  namespaces,
  ownAccessReviews,
  pods,
  type Resource,
  secrets,
} from '../../kube/resources.ts';
import { checkSettings } from '../../redis/settings.ts';
import { signalWithin, systemClock } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import type { Means } from '../command.ts';
import type { migrate as command } from '../flags.ts';
import {
  type Finding,
  judgeCertificate,
  judgeElection,
  judgeLease,
  judgePodSecurity,
  judgePorts,
  judgeRights,
  note,
  type Right,
  rightsIn,
  wrong,
} from './findings.ts';
import type { Migrated, Plan } from './kustomization.ts';
import type { Fields, Workload } from './provisioner.ts';
import { judgeImages, judgeServer, neededKinds } from './versions.ts';

/* Looks at the cluster, Redis and the gateway before a migration. Writes nothing. */

/** What is to be migrated. */
export interface Subject {
  readonly plan: Plan;
  readonly migrated: Migrated;
  readonly out: string;
  /** By folder of k8s/, the roles that ingest and jobs need there. */
  readonly roles: ReadonlyMap<string, readonly Fields[]>;
  /** Lines of k8s/redis/users.acl. */
  readonly users: readonly string[];
  /** Whether external-provisioner's arguments are known. */
  readonly hasArguments: boolean;
}

/** What the driver says of itself; undefined: it was not asked, or does not answer. */
interface Answer {
  readonly capabilities: DriverInfo['pluginCapabilities'] | undefined;
}

type CheckMeans = Means<typeof command.flags>;

/** What is right and wrong, where the flags name what to look at. */
export async function check(
  means: CheckMeans,
  kube: KubeClient | undefined,
  subject: Subject,
): Promise<readonly Finding[]> {
  const { flags } = means.context;
  const { plan, migrated } = subject;
  const { workload } = plan.provisioner;
  const hasGateway = flags.gateway.length > 0 || flags.gatewayService !== '';
  const driver =
    hasGateway && kube !== undefined
      ? await askGateway(means, kube, plan)
      : note('not checked: the gateway; give --gateway and --kubeconfig when it runs');
  const capabilities = 'pluginCapabilities' in driver ? driver.pluginCapabilities : undefined;
  const findings = plan.provisioner.isServed
    ? []
    : [...judgeElection(workload, plan.sorted, migrated.namespace)];
  if (!subject.hasArguments)
    findings.push(
      note(
        `not checked: what external-provisioner’s arguments asked for; ${subject.out} does not have ` +
          'this workload as it was: name by --out the folder that sutler migrate wrote',
      ),
    );
  if (kube === undefined) findings.push(note('not checked: the cluster; give --kubeconfig'));
  else findings.push(...(await checkCluster(means, kube, { ...subject, capabilities })));
  if (flags.redisUrl === '') findings.push(note('not checked: Redis; give --redis-url'));
  else findings.push(...(await checkRedis(await means.openRedis(), flags.redisPrefix, subject)));
  findings.push('kind' in driver ? driver : note(`the gateway answers for ${plan.driverName}`));
  return findings;
}

async function checkCluster(
  { context, say }: CheckMeans,
  kube: KubeClient,
  subject: Subject & Answer,
): Promise<readonly Finding[]> {
  const { migrated, plan, out } = subject;
  const { namespace, leaseNamespace, service } = migrated;
  const { workload } = plan.provisioner;
  const findings: Finding[] = [];
  const look = async (what: string, read: () => Promise<readonly Finding[]>): Promise<void> => {
    try {
      findings.push(...(await read()));
    } catch (error) {
      if (!isForbidden(error)) throw error;
      findings.push(note(`not checked: ${what} (${messageOf(error)})`));
    }
  };
  await look('the CSIDriver', async () =>
    (await kube.get(csiDrivers, { name: plan.driverName })) === undefined
      ? [
          wrong(
            `there is no CSIDriver ${plan.driverName}: --driver-name, see kubectl get csidrivers`,
          ),
        ]
      : [],
  );
  await look('the Lease', async () => {
    const at = { namespace: leaseNamespace, name: leaseName(plan.driverName) };
    const seen = await observeLease(kube, at, { stopping: context.stopping, say });
    const { durationMs = 0 } = seen?.record ?? {};
    const holder = holderOf(seen, systemClock.nowMs());
    return [
      judgeLease(plan.provisioner, { holder, durationMs, title: `${leaseNamespace}/${at.name}` }),
    ];
  });
  await look('the gateway’s certificate', async () => {
    const name = `${service}.${namespace}.svc`;
    const title = `${namespace}/${service}-tls`;
    const mend =
      `GATEWAY_NAMES=DNS:${name} k8s/gateway/certificates.sh certificates, and then kubectl -n ` +
      `${namespace} create secret generic ${service}-tls as docs/gateway.md does`;
    const found = await kube.get<Fields>(secrets, { namespace, name: `${service}-tls` });
    return judgeCertificate(found, { title, name, mend, nowMs: systemClock.nowMs() });
  });
  await look('the Pod Security of the namespace', async () => {
    const found = await kube.get<{ metadata: { labels?: Readonly<Record<string, string>> } }>(
      namespaces,
      { name: namespace },
    );
    const level = found?.metadata.labels?.['pod-security.kubernetes.io/enforce'];
    return judgePodSecurity(level, migrated, out);
  });
  if (workload.spec.template.spec['hostNetwork'] === true)
    await look('the ports of the nodes', async () => {
      const all: Fields[] = [];
      for await (const pod of listAll<Fields>(kube, pods)) all.push(pod);
      return judgePorts(migrated, all, out);
    });
  await look('the version of the API server', async () => {
    const needs = neededKinds(plan.sorted.section);
    const kinds = await servedKinds(
      kube,
      needs.map(({ kind }) => kind),
    );
    const found = await kube.discover<{ readonly gitVersion: string }>('/version');
    return judgeServer({ version: found?.gitVersion ?? 'of unknown version', kinds }, needs);
  });
  await look('the version of ingest and jobs', async () => {
    const images = new Map<string, string>();
    for (const name of ['ingest', 'jobs']) {
      const at = { namespace: 'sutler', name: `sutler-${name}` };
      const found = await kube.get<Workload>(deployments, at);
      const container = found?.spec.template.spec.containers.find((each) => each.name === name);
      if (container !== undefined) images.set(at.name, container.image);
    }
    return judgeImages(images, plan.image);
  });
  findings.push(...(await checkRights(kube, subject)));
  return findings;
}

/** Those of the kinds that the API server has. */
async function servedKinds(
  kube: KubeClient,
  kinds: readonly Resource[],
): Promise<ReadonlySet<Resource>> {
  const served = new Set<Resource>();
  for (const kind of kinds) {
    const group = await kube.discover<{ readonly resources: readonly { readonly name: string }[] }>(
      `/apis/${apiVersionOf(kind)}`,
    );
    if (group?.resources.some(({ name }) => name === kind.plural) === true) served.add(kind);
  }
  return served;
}

const POLL_MS = 1_000;

/** The Lease, when it was renewed once or has expired: its times prove nothing. */
async function observeLease(
  kube: KubeClient,
  at: { readonly namespace: string; readonly name: string },
  o: { readonly stopping: AbortSignal; readonly say: (line: string) => void },
): Promise<Observation | undefined> {
  let first: Observation | undefined;
  for (;;) {
    const lease = await kube.get<Lease>(leases, at);
    const read = lease === undefined ? undefined : leaseRecord(lease.spec ?? {});
    const nowMs = systemClock.nowMs();
    const now = observe(first, read, nowMs);
    if (holderOf(now, nowMs) === undefined || o.stopping.aborted) return now;
    if (first !== undefined && now !== first) return now;
    if (first === undefined)
      o.say(`${now?.record.holder} holds the Lease: waiting until that is renewed or has expired`);
    first = now;
    await systemClock.sleep(POLL_MS, o.stopping);
  }
}

/** Those of ingest and jobs; where the caller may not ask for them, the caller's own to apply what
 * is written. */
async function checkRights(
  kube: KubeClient,
  subject: Subject & Answer,
): Promise<readonly Finding[]> {
  const { capabilities } = subject;
  const hasTopology = capabilities?.has('VOLUME_ACCESSIBILITY_CONSTRAINTS');
  try {
    const findings = [];
    for (const [folder, objects] of subject.roles) {
      if (folder === 'topology' && hasTopology === false) continue;
      const rights = rightsIn(objects);
      const allowed = await Promise.all(rights.map((right) => mayAccount(kube, right)));
      findings.push(
        ...judgeRights(
          rights.filter((_, i) => allowed[i] === false),
          { folder, isNeeded: folder !== 'topology' || hasTopology === true },
        ),
      );
    }
    return findings;
  } catch (error) {
    if (!isForbidden(error)) throw error;
    const unknown = note(`not checked: the rights of ingest and jobs (${messageOf(error)})`);
    return [unknown, ...(await checkOwnRights(kube, subject))];
  }
}

interface Review {
  readonly status: { readonly allowed: boolean };
}

async function mayAccount(
  kube: KubeClient,
  { account, ...resourceAttributes }: Right,
): Promise<boolean> {
  const { status } = await kube.create<Review>(accessReviews, undefined, {
    spec: {
      user: `system:serviceaccount:sutler:${account}`,
      groups: ['system:serviceaccounts', 'system:serviceaccounts:sutler', 'system:authenticated'],
      resourceAttributes,
    },
  });
  return status.allowed;
}

async function checkOwnRights(
  kube: KubeClient,
  { migrated, out }: Subject,
): Promise<readonly Finding[]> {
  const { namespace, workload, beside } = migrated;
  const objects = [workload as unknown as Fields, ...beside];
  const wanted = new Map(objects.map((object) => [String(object['kind']), object]));
  const findings: Finding[] = [];
  for (const [kind, object] of wanted) {
    const resource = `${kind.toLowerCase().replace(/y$/, 'ie')}s`;
    const [group = ''] = String(object['apiVersion']).split('/').toReversed().slice(1);
    const verb = object === objects[0] ? 'update' : 'create';
    const { status } = await kube.create<Review>(ownAccessReviews, undefined, {
      spec: { resourceAttributes: { verb, group, resource, namespace } },
    });
    if (!status.allowed)
      findings.push(
        wrong(
          `you may not ${verb} ${resource} in ${namespace}, which ${out} needs: have somebody run ` +
            `it who may (kubectl auth can-i ${verb} ${resource} -n ${namespace})`,
        ),
      );
  }
  return findings;
}

async function checkRedis(
  redis: Redis,
  prefix: string,
  { users }: Subject,
): Promise<readonly Finding[]> {
  const { version, wrong: amiss, unknown } = await checkSettings(redis);
  const findings = [
    ...(version === undefined ? [] : [note(`Redis is ${version}; 7.0 or later is needed`)]),
    ...amiss.map(wrong),
    ...unknown.map(note),
  ];
  for (const name of ['sutler-ingest', 'sutler-jobs']) {
    const line = users.find((each) => each.startsWith(`user ${name} `)) ?? '';
    findings.push(...(await checkUser(redis, name, line.replaceAll('{csi}', `{${prefix}}`))));
  }
  return findings;
}

/** Each command and each pattern of keys that the line grants. */
async function checkUser(redis: Redis, name: string, line: string): Promise<readonly Finding[]> {
  // Selectors, in brackets, only grant scripts, on all keys.
  const grants = line.split(' ');
  const patterns = grants.filter((each) => each.startsWith('~') || each.startsWith('%R~'));
  const keyOf = (pattern: string): string => pattern.replace(/^(%R)?~/, '').replaceAll('*', 'x');
  const key = keyOf(patterns.find((each) => each.startsWith('~')) ?? '');
  const dryRun = async (words: readonly string[]): Promise<string> =>
    redis.call('ACL', 'DRYRUN', name, ...words).then(String, messageOf);
  const refusals: string[] = [];
  const judge = (title: string, answer: string): void => {
    if (answer !== 'OK') refusals.push(`${title} (${answer})`);
  };
  const first = await dryRun(['info']);
  if (/not found/.test(first))
    return [
      note(
        `not checked: rights in Redis; it has no user ${name}: make it from k8s/redis/users.acl, or ` +
          'give the one in its --redis-url these rights',
      ),
    ];
  if (/^(NOPERM|ERR)/.test(first))
    return [note(`not checked: the rights of ${name} in Redis (${first})`)];
  for (const pattern of patterns)
    judge(
      pattern,
      await dryRun(
        pattern.startsWith('%R') ? ['get', keyOf(pattern)] : ['set', keyOf(pattern), ''],
      ),
    );
  for (const grant of grants.filter((each) => /^\+[a-z|]+$/.test(each)))
    judge(grant, await dryRunOf(grant.slice(1).split('|'), key, dryRun));
  if (refusals.length === 0) return [];
  const more = refusals.length > 1 ? `, and ${refusals.length - 1} more` : '';
  return [
    wrong(
      `the user ${name} of Redis lacks ${refusals[0]}${more}: set it as k8s/redis/users.acl has it ` +
        '(ACL SETUSER, or aclfile and ACL LOAD)',
    ),
  ];
}

/** With as many arguments as the command needs. */
async function dryRunOf(
  words: readonly string[],
  key: string,
  dryRun: (words: readonly string[]) => Promise<string>,
): Promise<string> {
  let answer = '';
  for (let count = 0; count <= MOST_ARGUMENTS; count += 1) {
    answer = await dryRun([...words, ...Array.from({ length: count }, () => key)]);
    if (!/wrong number of arguments/.test(answer)) return answer;
  }
  return answer;
}

const MOST_ARGUMENTS = 5;

/** Longer than an idle gateway takes to connect to its driver. */
const GATEWAY_LIMIT_MS = 20_000;

/** @returns what the driver says of itself, or that no gateway answers */
async function askGateway(
  { context }: CheckMeans,
  kube: KubeClient,
  { driverName }: Plan,
): Promise<DriverInfo | Finding> {
  // What it would log is in the finding.
  const log = context.log.child({}, { level: 'error' });
  const { driver } = await openDriver({ ...context, log }, kube, { name: driverName });
  const found = await driver.waitUntilKnown(signalWithin(context.stopping, GATEWAY_LIMIT_MS));
  return (
    found ??
    wrong(
      `no gateway of ${driverName} answers (${driver.trouble ?? 'no answer'}): start it, or correct ` +
        '--gateway, --gateway-service and the TLS files',
    )
  );
}
