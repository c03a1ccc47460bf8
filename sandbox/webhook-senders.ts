import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { KubeClient } from '#src/kube/client.ts';
import { makeCertificate } from './api/http/certificate.ts';
import { validatingWebhooks } from './resources.ts';

/** What ingest's servers for webhooks and those who call them need. */
export interface WebhookFiles {
  /** The certificate, which callers trust, and its key. */
  readonly cert: string;
  readonly key: string;
  /** The bearer token of the event sender. */
  readonly token: string;
  /** The text of the certificate. */
  readonly ca: string;
}

/** Writes a new certificate and a new token into a folder, readable only by their owner. */
export async function writeWebhookFiles(folder: string, nowMs: number): Promise<WebhookFiles> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const certificate = makeCertificate(nowMs);
  const write = async (name: string, text: string): Promise<string> => {
    const path = join(folder, name);
    await writeFile(path, text, { mode: 0o600 });
    return path;
  };
  return {
    cert: await write('tls.crt', certificate.cert),
    key: await write('tls.key', certificate.key),
    token: await write('token', `${randomBytes(24).toString('base64url')}\n`),
    ca: certificate.cert,
  };
}

/** Flags by which ingest takes webhooks on loopback. */
export function receiverArgs({ cert, key, token }: WebhookFiles): readonly string[] {
  return [
    '--webhook-address=127.0.0.1:0',
    '--admission-address=127.0.0.1:0',
    `--webhook-tls-cert=${cert}`,
    `--webhook-tls-key=${key}`,
    `--admission-tls-cert=${cert}`,
    `--admission-tls-key=${key}`,
    `--webhook-token-file=${token}`,
  ];
}

/** Flags by which the event sender sends to ingest.
 * @param url  where ingest takes events */
export function senderArgs({ cert, token }: WebhookFiles, url = ''): readonly string[] {
  return [`--sink=${url}`, `--sink-ca=${cert}`, `--sink-token-file=${token}`];
}

/** Has the API server ask ingest about writes, like k8s/admission; without `matchConditions`, which
 * the sandbox's server does not evaluate.
 * @param receiver.url  of ingest's admission webhook
 * @param receiver.ca   text of the certificate that it has */
export async function registerAdmission(
  client: KubeClient,
  receiver: { readonly url: string; readonly ca: string },
): Promise<void> {
  const common = {
    clientConfig: { url: receiver.url, caBundle: Buffer.from(receiver.ca).toString('base64') },
    failurePolicy: 'Ignore',
    sideEffects: 'NoneOnDryRun',
    timeoutSeconds: 1,
    admissionReviewVersions: ['v1'],
  };
  const core = { apiGroups: [''], apiVersions: ['v1'] };
  await client.create(validatingWebhooks, undefined, {
    metadata: { name: 'sutler-notices' },
    webhooks: [
      {
        ...common,
        name: 'claims.notices.sutler.dev',
        rules: [
          { ...core, operations: ['CREATE', 'UPDATE'], resources: ['persistentvolumeclaims'] },
        ],
      },
      {
        ...common,
        name: 'volumes.notices.sutler.dev',
        rules: [
          {
            ...core,
            operations: ['UPDATE'],
            resources: ['persistentvolumes', 'persistentvolumes/status'],
          },
        ],
      },
    ],
  });
}
