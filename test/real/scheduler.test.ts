import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'node:test';
import { realControlPlane } from '../harness/real-control-plane.ts';
import { describeScheduler } from '../conformance/scheduler.ts';

// kube-scheduler is optional among the assets of a control plane.
const assets = process.env['KUBEBUILDER_ASSETS'] ?? '';
const hasScheduler =
  assets === '' ||
  existsSync(join(assets, 'kube-scheduler')) ||
  (process.env['KUBE_SCHEDULER'] ?? '') !== '';

if (hasScheduler)
  describeScheduler('kube-scheduler', realControlPlane(process.env, { binder: true }));
else describe('scheduler', { skip: 'there is no kube-scheduler among the assets' }, () => {});
