R=/sys/fs/cgroup
mount | grep cgroup
cat $R/cgroup.controllers
echo +cpu > $R/cgroup.subtree_control; echo +cpuset > $R/cgroup.subtree_control
mkdir $R/w0; echo threaded > $R/w0/cgroup.type; cat $R/w0/cgroup.type
echo 0-1 > $R/w0/cpuset.cpus; cat $R/w0/cpuset.cpus $R/w0/cpuset.cpus.effective
echo 1 > $R/w0/cpu.idle; cat $R/w0/cpu.idle $R/w0/cpu.weight
echo +cpu > $R/w0/cgroup.subtree_control; echo +cpuset > $R/w0/cgroup.subtree_control
mkdir $R/w0/in; echo threaded > $R/w0/in/cgroup.type; echo 3 > $R/w0/in/cpuset.cpus; cat $R/w0/in/cpuset.cpus.effective; echo 1,3 > $R/w0/in/cpuset.cpus; cat $R/w0/in/cpuset.cpus $R/w0/in/cpuset.cpus.effective
echo 50 > $R/w0/in/cpu.weight; cat $R/w0/in/cpu.weight
sh -c 'echo $$ > /sys/fs/cgroup/w0/cgroup.threads; grep Cpus_allowed_list /proc/self/status; taskset -p 8 $$ ; grep Cpus_allowed_list /proc/self/status; taskset -p a $$; grep Cpus_allowed_list /proc/self/status; echo $$ > /sys/fs/cgroup/cgroup.threads; grep Cpus_allowed_list /proc/self/status; taskset -p 8 $$; echo $$ > /sys/fs/cgroup/w0/cgroup.threads; grep Cpus_allowed_list /proc/self/status'
rmdir $R/w0/in $R/w0
echo -cpu > $R/cgroup.subtree_control; echo -cpuset > $R/cgroup.subtree_control; cat $R/cgroup.subtree_control
cat /sys/devices/system/cpu/isolated /sys/devices/system/cpu/nohz_full; ls /sys/kernel/debug/sched 2>/dev/null; cat /sys/kernel/debug/sched/cgroup_mode 2>/dev/null

