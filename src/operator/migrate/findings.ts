import { X509Certificate } from 'node:crypto';
import { otherHolder } from '../../election/lease.ts';
import { isFields } from '../../runtime/json.ts';
import type { SortedArguments } from './arguments.ts';
import type { Migrated, Ports } from './kustomization.ts';
import type { Fields, Provisioner, Workload } from './provisioner.ts';

/* What stands in the way of a migration. Pure. */

/** One line about what was looked at. */
export interface Finding {
  /** wrong: it stands in the way, and the line says what mends it. */
  readonly kind: 'wrong' | 'note';
  readonly text: string;
}

export const wrong = (text: string): Finding => ({ kind: 'wrong', text });
export const note = (text: string): Finding => ({ kind: 'note', text });

/** "Deployment" as kubectl takes it: "deployment/NAME". */
export function kubectlName({ kind, metadata }: Workload): string {
  return `${kind.toLowerCase()}/${metadata.name}`;
}

/** @param o.holder  undefined: nobody
 * @param o.title  namespace and name of the Lease */
export function judgeLease(
  { workload, isServed }: Pick<Provisioner, 'workload' | 'isServed'>,
  o: { readonly holder: string | undefined; readonly durationMs: number; readonly title: string },
): Finding {
  const { holder, title } = o;
  if (holder === undefined)
    return isServed
      ? wrong(
          `nobody holds the Lease ${title}, so nobody provisions: see /readyz and the log of ingest ` +
            '(kubectl -n sutler logs deploy/sutler-ingest)',
        )
      : note(`the Lease ${title} is free`);
  if (otherHolder(holder) === undefined) return note(`sutler holds the Lease ${title}`);
  const free = `${o.durationMs / 1000} s after it has ended`;
  // A pod with the node's network has the node's name.
  const isOwn =
    holder.startsWith(`${workload.metadata.name}-`) ||
    workload.spec.template.spec['hostNetwork'] === true;
  if (isOwn)
    return note(
      `${holder} holds the Lease ${title}, which is free when that pod was replaced, ${free}`,
    );
  return wrong(
    `${holder} holds the Lease ${title} and is no pod of ${kubectlName(workload)}: stop it ` +
      `(kubectl get pods -A | grep ${holder}); the Lease is free ${free}`,
  );
}

/** Without leader election, a pod of before works beside the new ones until it has ended. */
export function judgeElection(
  workload: Workload,
  { hasElection, isNodeDeployment }: SortedArguments,
  namespace: string,
): readonly Finding[] {
  const { kind, spec } = workload;
  const strategy = isFields(spec['strategy']) ? spec['strategy']['type'] : undefined;
  const isReplacedFirst =
    kind !== 'Deployment' || strategy === 'Recreate' || spec['replicas'] === 0;
  if (hasElection || isNodeDeployment || isReplacedFirst) return [];
  return [
    wrong(
      'external-provisioner has no --leader-election, so it works beside sutler until its pod ends: ' +
        `after writing, kubectl -n ${namespace} scale ${kubectlName(workload)} --replicas=0`,
    ),
  ];
}

/** @param secret  of the gateway's certificate; undefined: there is none
 * @param mend  how it is made */
export function judgeCertificate(
  secret: Fields | undefined,
  o: {
    readonly title: string;
    readonly name: string;
    readonly mend: string;
    readonly nowMs: number;
  },
): readonly Finding[] {
  const { title, name, mend, nowMs } = o;
  if (secret === undefined) return [wrong(`there is no Secret ${title}: ${mend}`)];
  const data = isFields(secret['data']) ? secret['data'] : {};
  const missing = ['tls.crt', 'tls.key', 'ca.crt'].filter((key) => typeof data[key] !== 'string');
  if (missing.length > 0)
    return [wrong(`the Secret ${title} lacks ${missing.join(', ')}: ${mend}`)];
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(Buffer.from(String(data['tls.crt']), 'base64'));
  } catch {
    return [wrong(`tls.crt of the Secret ${title} is no certificate: ${mend}`)];
  }
  // The common name does not count, for the callers of the gateway either.
  const hasName = certificate.checkHost(name, { subject: 'never' }) !== undefined;
  const isOver = Date.parse(certificate.validTo) <= nowMs;
  return [
    ...(hasName
      ? []
      : [wrong(`the certificate of the Secret ${title} is not for ${name}: ${mend}`)]),
    ...(isOver ? [wrong(`the certificate of the Secret ${title} has expired: ${mend}`)] : []),
  ];
}

/** @param level  the label pod-security.kubernetes.io/enforce of the namespace */
export function judgePodSecurity(
  level: string | undefined,
  { user, namespace, workload }: Pick<Migrated, 'user' | 'namespace' | 'workload'>,
  out: string,
): readonly Finding[] {
  if (level !== 'restricted' || (user ?? 0) !== 0) return [];
  return [
    wrong(
      `the namespace ${namespace} enforces the profile restricted, which does not admit a gateway ` +
        `that runs as root: set runAsUser of csi-gateway in ${out}/workload.yaml, and runAsNonRoot: ` +
        `true, to a user that may open the socket of ${workload.metadata.name}, or ` +
        `kubectl label namespace ${namespace} pod-security.kubernetes.io/enforce=baseline --overwrite`,
    ),
  ];
}

/** Other pods with the nodes' network that listen on the gateway's ports.
 * @param pods  of the cluster */
export function judgePorts(
  { workload, namespace, ports }: Pick<Migrated, 'workload' | 'namespace' | 'ports'>,
  pods: Iterable<Fields>,
  out: string,
): readonly Finding[] {
  for (const pod of pods) {
    const title = podWithPort(pod, ports);
    if (title === undefined || title.startsWith(`${namespace}/${workload.metadata.name}-`))
      continue;
    return [
      wrong(
        `the pod ${title} has the port ${ports.gateway} or ${ports.http} of its node, as the gateway ` +
          `with hostNetwork is to have: write other ports into ${out}/workload.yaml and ` +
          `${out}/beside/objects.yaml`,
      ),
    ];
  }
  return [];
}

function podWithPort({ metadata, spec }: Fields, { gateway, http }: Ports): string | undefined {
  if (!isFields(metadata) || !isFields(spec)) return undefined;
  const isOnNode = spec['hostNetwork'] === true;
  const used = JSON.stringify(spec['containers'] ?? []).matchAll(
    isOnNode ? /"(?:containerPort|hostPort)":(\d+)/g : /"hostPort":(\d+)/g,
  );
  const isTaken = [...used].some(([, port]) => [gateway, http].includes(Number(port)));
  return isTaken ? `${String(metadata['namespace'])}/${String(metadata['name'])}` : undefined;
}

/** One right of a service account, as a SubjectAccessReview asks for it. */
export interface Right {
  /** Of the namespace `sutler`. */
  readonly account: string;
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly name?: string;
  readonly namespace?: string;
}

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
  readonly resourceNames?: readonly string[];
}

/** The rights that the roles among the objects give by their bindings. */
export function rightsIn(objects: readonly Fields[]): readonly Right[] {
  const bindings = objects.filter(({ kind }) => String(kind).endsWith('RoleBinding'));
  return bindings.flatMap((binding) => {
    const { kind, name } = binding['roleRef'] as { kind: string; name: string };
    const role = objects.find(
      (each) => each['kind'] === kind && (each['metadata'] as Fields)['name'] === name,
    );
    const { namespace } = binding['metadata'] as { namespace?: string };
    const subjects = binding['subjects'] as readonly { readonly name: string }[];
    return subjects.flatMap((subject) =>
      ((role?.['rules'] ?? []) as readonly Rule[]).flatMap((rule) =>
        rightsOf(rule, {
          account: subject.name,
          ...(namespace === undefined ? {} : { namespace }),
        }),
      ),
    );
  });
}

function rightsOf(rule: Rule, whose: Pick<Right, 'account' | 'namespace'>): readonly Right[] {
  const { apiGroups, resources, verbs, resourceNames } = rule;
  const named = resourceNames?.map((name) => ({ name })) ?? [{}];
  return apiGroups.flatMap((group) =>
    resources.flatMap((resource) =>
      verbs.flatMap((verb) => named.map((name) => ({ ...whose, verb, group, resource, ...name }))),
    ),
  );
}

/** @param missing  rights that an account does not have
 * @param o.folder  of k8s/, which grants them
 * @param o.isNeeded  false: only if the driver has topology, which is not known */
export function judgeRights(
  missing: readonly Right[],
  { folder, isNeeded }: { readonly folder: string; readonly isNeeded: boolean },
): readonly Finding[] {
  const accounts = new Set(missing.map(({ account }) => account));
  return [...accounts].map((account) => {
    const rights = missing.filter((right) => right.account === account);
    const [first] = rights;
    const more = rights.length > 1 ? ` and ${rights.length - 1} more` : '';
    const text =
      `the service account sutler/${account} may not ${first?.verb} ${first?.resource}${more}: ` +
      `install what k8s/${folder} grants (k8s/README.md)`;
    return isNeeded ? wrong(text) : note(`if the driver has topology (--gateway asks it): ${text}`);
  });
}
